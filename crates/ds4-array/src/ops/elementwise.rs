//! Operations on single elements.

use crate::primitive::{BinaryOp, Broadcast, Primitive, UnaryOp};
use crate::{Array, ArrayError};

use super::check;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(x: &Array) -> Result<Array, ArrayError> {
            check::f32(stringify!($name), "x", x)?;
            Ok(Array::lazy(x.stream(), *x.shape(), x.dtype(), Primitive::Unary(UnaryOp::$op), [x.clone()]))
        }
    )*};
}

unary! {
    /// -x.
    neg = Neg;
    /// e^x.
    exp = Exp;
    /// |x|.
    abs = Abs;
    /// max(x, 0).
    relu = Relu;
    /// The square root.
    sqrt = Sqrt;
    /// 1 / (1 + e^-x).
    sigmoid = Sigmoid;
    /// x * sigmoid(x).
    silu = Silu;
    /// ln(1 + e^x), without overflow.
    softplus = Softplus;
    /// sign(x) * sqrt(max(|x|, 1e-6)), and 0 for 0: the gate curve of per-layer embeddings.
    signed_sqrt = SignedSqrt;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// `b` has the shape of `a`, or is one row for all rows, or has a last axis of 1: a value for each row.
        pub fn $name(a: &Array, b: &Array) -> Result<Array, ArrayError> {
            let op = stringify!($name);
            check::f32(op, "a", a)?;
            check::f32(op, "b", b)?;
            let primitive = Primitive::Binary(BinaryOp::$op, broadcast(op, a, b)?);
            Ok(Array::lazy(a.stream(), *a.shape(), a.dtype(), primitive, [a.clone(), b.clone()]))
        }
    )*};
}

binary! {
    /// a + b.
    add = Add;
    /// a - b.
    sub = Sub;
    /// a * b.
    mul = Mul;
    /// a / b.
    div = Div;
    /// The larger one.
    maximum = Max;
    /// The smaller one.
    minimum = Min;
}

fn broadcast(op: &'static str, a: &Array, b: &Array) -> Result<Broadcast, ArrayError> {
    let (left, right) = (a.shape(), b.shape());
    if left == right {
        Ok(Broadcast::None)
    } else if right.len() == 1 && right.width() == left.width() {
        Ok(Broadcast::Row)
    } else if *right == left.with_width(1) {
        Ok(Broadcast::Column)
    } else {
        let expected = format!("{left:?}, [{}] or {:?}", left.width(), left.with_width(1));
        Err(check::wrong_shape(op, "b", expected, *right))
    }
}

/// x * factor.
pub fn scale(x: &Array, factor: f32) -> Result<Array, ArrayError> {
    check::f32("scale", "x", x)?;
    Ok(Array::lazy(x.stream(), *x.shape(), x.dtype(), Primitive::Scale(factor), [x.clone()]))
}

/// sigmoid(x * before) * after: the same as the three operations, in one node.
pub fn scaled_sigmoid(x: &Array, before: f32, after: f32) -> Result<Array, ArrayError> {
    scaled("scaled_sigmoid", x, before, UnaryOp::Sigmoid, after)
}

/// silu(x * before): the same as the two operations, in one node.
pub fn scaled_silu(x: &Array, before: f32) -> Result<Array, ArrayError> {
    scaled("scaled_silu", x, before, UnaryOp::Silu, 1.0)
}

fn scaled(name: &'static str, x: &Array, before: f32, op: UnaryOp, after: f32) -> Result<Array, ArrayError> {
    check::f32(name, "x", x)?;
    let primitive = Primitive::ScaledUnary { before, op, after };
    Ok(Array::lazy(x.stream(), *x.shape(), x.dtype(), primitive, [x.clone()]))
}

/// silu(gate) * up, both of the same shape.
pub fn swiglu(gate: &Array, up: &Array) -> Result<Array, ArrayError> {
    gated("swiglu", Primitive::SwiGlu, gate, up)
}

/// silu(min(gate, limit)) * clamp(up, -limit, limit), both of the same shape.
pub fn swiglu_clamped(gate: &Array, up: &Array, limit: f32) -> Result<Array, ArrayError> {
    gated("swiglu_clamped", Primitive::SwiGluClamped(limit), gate, up)
}

/// x * sigmoid(gate), both of the same shape.
pub fn sigmoid_gate(x: &Array, gate: &Array) -> Result<Array, ArrayError> {
    gated("sigmoid_gate", Primitive::SigmoidGate, x, gate)
}

fn gated(op: &'static str, primitive: Primitive, a: &Array, b: &Array) -> Result<Array, ArrayError> {
    check::f32(op, "the first argument", a)?;
    check::f32(op, "the second argument", b)?;
    if a.shape() != b.shape() {
        return Err(check::wrong_shape(op, "the second argument", format!("{:?}", a.shape()), *b.shape()));
    }
    Ok(Array::lazy(a.stream(), *a.shape(), a.dtype(), primitive, [a.clone(), b.clone()]))
}
