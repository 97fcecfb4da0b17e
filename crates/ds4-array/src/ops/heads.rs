//! Matrix products in which every head has a matrix of its own.

use ds4_dtype::DType;

use crate::primitive::{HeadSpec, Primitive};
use crate::{Array, ArrayError, Shape};

use super::check;
use super::linear::Weight;

/// Where the matrix of each head lies in a weight [H * stride, K]: rows `first..first + rows` of the head's `stride`.
#[derive(Clone, Copy, Debug)]
pub struct HeadRows {
    /// Rows of the weight from one head to the next.
    pub stride: usize,
    /// First row of a head that is used.
    pub first: usize,
    /// Number of rows that are used.
    pub rows: usize,
}

/// x [L, H, K] times the transposed matrix of each head: [L, H, rows].
pub fn head_linear(x: &Array, weight: &Weight, at: HeadRows) -> Result<Array, ArrayError> {
    product("head_linear", x, weight, at, false)
}

/// x [L, H, rows] times the matrix of each head as it is: [L, H, K]. Terms are added in the order of the rows.
pub fn head_linear_transposed(x: &Array, weight: &Weight, at: HeadRows) -> Result<Array, ArrayError> {
    product("head_linear_transposed", x, weight, at, true)
}

fn product(
    op: &'static str,
    x: &Array,
    weight: &Weight,
    at: HeadRows,
    transposed: bool,
) -> Result<Array, ArrayError> {
    let HeadRows { stride, first, rows } = at;
    check::f32(op, "x", x)?;
    let [n, k] = super::linear::matrix(op, weight)?;
    let (from, to) = if transposed { (rows, k) } else { (k, rows) };
    check::shape(op, "x", x, &[None, None, Some(from)])?;
    let [tokens, heads] = [x.shape()[0], x.shape()[1]];
    check::value(op, "rows of a head", first + rows, first + rows <= stride, || format!("at most {stride}"))?;
    check::value(op, "rows of the weight", n, n == heads * stride, || (heads * stride).to_string())?;
    let spec = HeadSpec { stride, first, rows, transposed };
    let primitive = Primitive::HeadLinear(weight.format(), spec);
    Ok(Array::lazy(x.stream(), Shape::from([tokens, heads, to]), DType::F32, primitive, weight.inputs(&[x])))
}
