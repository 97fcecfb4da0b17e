//! Functions of one element.

use crate::UnaryOp;

/// 1 / (1 + e^-x).
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// x * sigmoid(x).
pub(crate) fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

fn apply(op: UnaryOp, x: f32) -> f32 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Exp => x.exp(),
        UnaryOp::Sigmoid => sigmoid(x),
        UnaryOp::Silu => silu(x),
        UnaryOp::Softplus if x.is_nan() => x,
        UnaryOp::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Square => x * x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Relu if x < 0.0 => 0.0,
        UnaryOp::Relu => x,
        UnaryOp::Reciprocal => 1.0 / x,
        UnaryOp::SignedSqrt if x == 0.0 || x.is_nan() => x,
        UnaryOp::SignedSqrt => x.abs().max(1e-6).sqrt().copysign(x),
    }
}

/// `x` = op(`x`).
pub(crate) fn in_place(op: UnaryOp, x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = apply(op, *x));
}
