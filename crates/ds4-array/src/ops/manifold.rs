//! Manifold-constrained hyper-connections: the weights that read, write and mix parallel residual streams.

use ds4_dtype::DType;

use crate::primitive::{ManifoldSpec, Primitive};
use crate::{Array, ArrayError, Shape};

use super::check;

/// From a projection `x` [L, (2 + S) * S] of the streams to their coefficients of the same shape: pre `[S]` (how much of
/// each stream a block reads), post `[S]` (how much of its output each stream gets), comb [S, S] (stream j to stream k).
///
/// pre = sigmoid(x * scale0 + base) + eps; post = 2 * sigmoid(x * scale1 + base); comb = softmax by row of
/// (x * scale2 + base) + eps, whose columns, then rows and columns in turn, are divided by their sum + eps, `iterations`
/// rounds in all. `scale` is \[3\], `base` [(2 + S) * S]. Source: Xie et al., "mHC: Manifold-Constrained
/// Hyper-Connections".
pub fn manifold_coefficients(
    x: &Array,
    scale: &Array,
    base: &Array,
    streams: usize,
    iterations: usize,
    eps: f32,
) -> Result<Array, ArrayError> {
    let op = "manifold_coefficients";
    for (argument, array) in [("x", x), ("scale", scale), ("base", base)] {
        check::f32(op, argument, array)?;
    }
    let width = (2 + streams) * streams;
    check::shape(op, "x", x, &[None, Some(width)])?;
    check::shape(op, "scale", scale, &[Some(3)])?;
    check::shape(op, "base", base, &[Some(width)])?;
    check::value(op, "iterations", iterations, iterations > 0, || "at least 1".to_owned())?;
    let primitive = Primitive::ManifoldCoefficients(ManifoldSpec { streams, iterations, eps });
    let inputs = [x.clone(), scale.clone(), base.clone()];
    Ok(Array::lazy(x.stream(), *x.shape(), DType::F32, primitive, inputs))
}

/// The weighted sum of the streams of x [L, S * D]: [L, D]. The first S elements of each row of `weights` are used, so
/// coefficients can be given whole.
pub fn stream_collapse(x: &Array, weights: &Array, streams: usize) -> Result<Array, ArrayError> {
    let op = "stream_collapse";
    check::f32(op, "x", x)?;
    check::f32(op, "weights", weights)?;
    check::shape(op, "x", x, &[None, None])?;
    check::shape(op, "weights", weights, &[Some(x.shape()[0]), None])?;
    let width = x.shape()[1];
    let fits = streams > 0 && width.is_multiple_of(streams) && weights.shape()[1] >= streams;
    check::value(op, "streams", streams, fits, || {
        format!("a divisor of {width}, at most {}", weights.shape()[1])
    })?;
    let shape = Shape::from([x.shape()[0], width / streams]);
    let inputs = [x.clone(), weights.clone()];
    Ok(Array::lazy(x.stream(), shape, DType::F32, Primitive::StreamCollapse { streams }, inputs))
}

/// Stream k of the result [L, S * D] = post`[k]` * y + sum over j of comb[j, k] * stream j of x [L, S * D], with y [L, D]
/// and the `coefficients` [L, (2 + S) * S] of [`manifold_coefficients`].
pub fn stream_expand(
    x: &Array,
    y: &Array,
    coefficients: &Array,
    streams: usize,
) -> Result<Array, ArrayError> {
    let op = "stream_expand";
    for (argument, array) in [("x", x), ("y", y), ("coefficients", coefficients)] {
        check::f32(op, argument, array)?;
    }
    check::shape(op, "y", y, &[None, None])?;
    let [rows, width] = [y.shape()[0], y.shape()[1]];
    check::shape(op, "x", x, &[Some(rows), Some(streams * width)])?;
    check::shape(op, "coefficients", coefficients, &[Some(rows), Some((2 + streams) * streams)])?;
    let inputs = [x.clone(), y.clone(), coefficients.clone()];
    Ok(Array::lazy(x.stream(), *x.shape(), DType::F32, Primitive::StreamExpand { streams }, inputs))
}
