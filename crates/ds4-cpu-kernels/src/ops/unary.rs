//! Functions of one element.

use crate::Cpu;

/// Elements a task copies and then changes while they are in the L1 cache.
pub(crate) const BLOCK: usize = 2048;

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// -x
    Neg,
    /// e^x, to about one unit in the last place
    Exp,
    /// 1 / (1 + e^-x)
    Sigmoid,
    /// x * sigmoid(x)
    Silu,
    /// log(1 + e^x), without overflow
    Softplus,
    /// Square root
    Sqrt,
    /// x * x
    Square,
    /// |x|
    Abs,
    /// max(x, 0)
    Relu,
    /// 1 / x
    Reciprocal,
    /// sign(x) * sqrt(max(|x|, 1e-6)), and 0 for 0
    SignedSqrt,
}

impl UnaryOp {
    /// Rough cost of an element, in the unit of the thread pool.
    fn cost(self) -> usize {
        match self {
            Self::Exp | Self::Sigmoid | Self::Silu | Self::Softplus => 16,
            _ => 4,
        }
    }
}

/// `out` = op(`x`), element by element.
pub fn unary(cpu: &Cpu, op: UnaryOp, x: &[f32], out: &mut [f32]) {
    debug_assert_eq!(x.len(), out.len());
    cpu.for_each_rows(out, 1, op.cost(), |first, out| {
        for (out, x) in out.chunks_mut(BLOCK).zip(x[first..].chunks(BLOCK)) {
            out.copy_from_slice(&x[..out.len()]);
            dispatch!(cpu, unary::in_place(op, out));
        }
    });
}

/// `x` = op(`x`), element by element.
pub fn unary_in_place(cpu: &Cpu, op: UnaryOp, x: &mut [f32]) {
    cpu.for_each_rows(x, 1, op.cost(), |_, x| dispatch!(cpu, unary::in_place(op, x)));
}
