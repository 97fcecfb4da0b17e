//! Residual streams of hyper-connections.

use ds4_cpu_kernels as kernels;

use crate::ArrayError;
use crate::data::Data;

use super::call::Call;

pub(super) fn stream_mix(call: &Call<'_>, streams: usize) -> Result<Data, ArrayError> {
    let (u, h) = (call.dense(0)?, call.dense(1)?);
    let width = call.shape()[1];
    call.produce(|out| kernels::stream_mix(call.kernels(), u.as_slice(), h.as_slice(), streams, width, out))
}

pub(super) fn stream_inject(call: &mut Call<'_>) -> Result<Data, ArrayError> {
    let mut data = call.writable(0)?;
    let (y, inject) = (call.dense(1)?, call.dense(2)?);
    let (width, streams) = (call.shape_of(1)[1], call.shape_of(2)[1]);
    let x = Call::elements_mut(&mut data, call.shape())?;
    kernels::stream_inject(call.kernels(), x, y.as_slice(), inject.as_slice(), streams, width);
    drop((y, inject));
    Ok(data)
}
