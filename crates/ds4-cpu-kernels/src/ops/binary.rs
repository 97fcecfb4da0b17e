//! Functions of two elements, with the broadcasts that models use.
//!
//! The kernels work in place; the other forms copy a block first and change it while it is in the L1 cache.

use super::unary::BLOCK;
use crate::Cpu;

/// A function of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// a + b
    Add,
    /// a - b
    Sub,
    /// a * b
    Mul,
    /// a / b
    Div,
    /// The larger; b if either is not a number
    Max,
    /// The smaller; b if either is not a number
    Min,
}

/// `out[i]` = `a[i]` op `b[i]`.
pub fn binary(cpu: &Cpu, op: BinaryOp, a: &[f32], b: &[f32], out: &mut [f32]) {
    debug_assert_eq!(a.len(), out.len());
    debug_assert_eq!(b.len(), out.len());
    cpu.for_each_rows(out, 1, 4, |first, out| {
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let from = first + i * BLOCK;
            out.copy_from_slice(&a[from..from + out.len()]);
            dispatch!(cpu, binary::in_place(op, out, &b[from..from + out.len()]));
        }
    });
}

/// `a[i]` = `a[i]` op `b[i]`.
pub fn binary_in_place(cpu: &Cpu, op: BinaryOp, a: &mut [f32], b: &[f32]) {
    debug_assert_eq!(a.len(), b.len());
    cpu.for_each_rows(a, 1, 4, |first, a| {
        dispatch!(cpu, binary::in_place(op, a, &b[first..first + a.len()]))
    });
}

/// `out[r, c]` = `a[r, c]` op `b[c]`: `b` is a row applied to each row.
pub fn binary_row(cpu: &Cpu, op: BinaryOp, a: &[f32], b: &[f32], out: &mut [f32]) {
    debug_assert_eq!(a.len(), out.len());
    let width = b.len();
    cpu.for_each_rows(out, width, 4 * width, |first, out| {
        for (out, a) in out.chunks_exact_mut(width).zip(a[first * width..].chunks_exact(width)) {
            out.copy_from_slice(a);
            dispatch!(cpu, binary::in_place(op, out, b));
        }
    });
}

/// `a[r, c]` = `a[r, c]` op `b[c]`.
pub fn binary_row_in_place(cpu: &Cpu, op: BinaryOp, a: &mut [f32], b: &[f32]) {
    let width = b.len();
    cpu.for_each_rows(a, width, 4 * width, |_, a| {
        for a in a.chunks_exact_mut(width) {
            dispatch!(cpu, binary::in_place(op, a, b));
        }
    });
}

/// `out[r, c]` = `a[r, c]` op `b[r]`: `b` has one value a row.
pub fn binary_column(cpu: &Cpu, op: BinaryOp, a: &[f32], b: &[f32], out: &mut [f32]) {
    debug_assert_eq!(a.len(), out.len());
    if b.is_empty() {
        return;
    }
    let width = out.len() / b.len();
    cpu.for_each_rows(out, width, 4 * width, |first, out| {
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            out.copy_from_slice(&a[(first + i) * width..(first + i + 1) * width]);
            dispatch!(cpu, binary::with_value(op, out, b[first + i]));
        }
    });
}

/// `a[r, c]` = `a[r, c]` op `b[r]`.
pub fn binary_column_in_place(cpu: &Cpu, op: BinaryOp, a: &mut [f32], b: &[f32]) {
    if b.is_empty() {
        return;
    }
    let width = a.len() / b.len();
    cpu.for_each_rows(a, width, 4 * width, |first, a| {
        for (a, &b) in a.chunks_exact_mut(width).zip(&b[first..]) {
            dispatch!(cpu, binary::with_value(op, a, b));
        }
    });
}
