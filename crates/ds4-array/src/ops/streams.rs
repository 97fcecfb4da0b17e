//! Reading from and writing to the parallel residual streams of hyper-connections.

use crate::primitive::Primitive;
use crate::{Array, ArrayError, Shape};

use super::check;

/// The mean over the streams of sigmoid(u) * h: `u` and `h` [L, S * W], result [L, W].
pub fn stream_mix(u: &Array, h: &Array, streams: usize) -> Result<Array, ArrayError> {
    let op = "stream_mix";
    check::f32(op, "u", u)?;
    check::f32(op, "h", h)?;
    check::shape(op, "h", h, &[None, None])?;
    check::shape(op, "u", u, &[Some(h.shape()[0]), Some(h.shape()[1])])?;
    let width = h.shape()[1];
    check::value(op, "streams", streams, streams > 0 && width.is_multiple_of(streams), || {
        format!("a divisor of {width}")
    })?;
    let shape = Shape::from([h.shape()[0], width / streams]);
    Ok(Array::lazy(u.stream(), shape, u.dtype(), Primitive::StreamMix { streams }, [u.clone(), h.clone()]))
}

/// x [L, S * W] with y [L, W] * inject [L, S] added to each stream. In place if nobody else holds `x`.
pub fn stream_inject(x: &Array, y: &Array, inject: &Array) -> Result<Array, ArrayError> {
    let op = "stream_inject";
    for (argument, array) in [("x", x), ("y", y), ("inject", inject)] {
        check::f32(op, argument, array)?;
        check::shape(op, argument, array, &[Some(x.shape()[0]), None])?;
    }
    let (width, streams) = (y.shape()[1], inject.shape()[1]);
    check::shape(op, "x", x, &[None, Some(width * streams)])?;
    let inputs = [x.clone(), y.clone(), inject.clone()];
    Ok(Array::lazy(x.stream(), *x.shape(), x.dtype(), Primitive::StreamInject, inputs))
}
