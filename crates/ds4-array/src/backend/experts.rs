//! Bookkeeping of a mixture of experts.

use ds4_cpu_kernels as kernels;
use ds4_dtype::DType;

use crate::data::{Data, Storage};
use crate::{ArrayError, Shape};

use super::Outputs;
use super::call::Call;

pub(super) fn sort_by_expert(call: &Call<'_>, experts: usize) -> Result<Outputs, ArrayError> {
    let ids = call.dense(0)?;
    let [tokens, slots] = [call.shape_of(0)[0], call.shape_of(0)[1]];
    let (all, pairs) = (Shape::from([experts + 1]), Shape::from([tokens * slots]));
    let mut offsets = call.buffer(experts + 1, DType::U32)?;
    let mut position = call.buffer(tokens * slots, DType::U32)?;
    let rows = call.produce(|rows| {
        let offsets = bytemuck::cast_slice_mut(offsets.bytes_mut());
        let position = bytemuck::cast_slice_mut(position.bytes_mut());
        kernels::sort_by_expert(ids.as_slice(), slots, rows, offsets, position);
    })?;
    let further =
        vec![Data::dense(Storage::Owned(offsets), &all), Data::dense(Storage::Owned(position), &pairs)];
    Ok(Outputs { first: rows, further })
}

pub(super) fn combine_experts(call: &Call<'_>) -> Result<Data, ArrayError> {
    let (y, position, weights) = (call.dense(0)?, call.dense(1)?, call.dense(2)?);
    let (slots, n) = (call.shape_of(2)[1], call.shape()[1]);
    call.produce(|out| {
        let (y, position, weights) = (y.as_slice(), position.as_slice(), weights.as_slice());
        kernels::combine_experts(call.kernels(), y, position, weights, slots, n, out);
    })
}
