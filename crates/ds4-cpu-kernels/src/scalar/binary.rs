//! Functions of two elements.

use crate::BinaryOp;

// One rule for NaN on every instruction set: x86's `max` and `min` return the second operand unless the first wins.
fn apply(op: BinaryOp, a: f32, b: f32) -> f32 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Max if a > b => a,
        BinaryOp::Min if a < b => a,
        BinaryOp::Max | BinaryOp::Min => b,
    }
}

/// `a[i]` = `a[i]` op `b[i]`.
pub(crate) fn in_place(op: BinaryOp, a: &mut [f32], b: &[f32]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = apply(op, *a, *b));
}

/// `a[i]` = `a[i]` op `b`.
pub(crate) fn with_value(op: BinaryOp, a: &mut [f32], b: f32) {
    a.iter_mut().for_each(|a| *a = apply(op, *a, b));
}
