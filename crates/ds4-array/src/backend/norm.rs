//! Normalisations over the last axis.

use ds4_cpu_kernels as kernels;

use crate::ArrayError;
use crate::data::Data;

use super::call::Call;

pub(super) fn rms_norm(
    call: &Call<'_>,
    group: usize,
    weight_offset: f32,
    eps: f32,
) -> Result<Data, ArrayError> {
    let x = call.dense(0)?;
    let weight = if call.len() > 1 { Some(call.dense(1)?) } else { None };
    let weight = weight.as_ref().map(|dense| call.floats(1, dense));
    let width = call.shape().width();
    call.produce(|out| {
        kernels::rms_norm(call.kernels(), x.as_slice(), weight, weight_offset, width, group, eps, out);
    })
}

pub(super) fn l2_norm(call: &Call<'_>, eps: f32, scale: f32) -> Result<Data, ArrayError> {
    let x = call.dense(0)?;
    call.produce(|out| kernels::l2_norm(call.kernels(), x.as_slice(), call.shape().width(), eps, scale, out))
}
