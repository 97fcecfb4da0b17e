//! Bookkeeping of a mixture of experts.

use ds4_cpu_kernels as kernels;
use ds4_dtype::DType;

use crate::data::Data;
use crate::{ArrayError, Shape};

use super::call::Call;

pub(super) fn sort_by_expert(call: &Call<'_>, experts: usize) -> Result<Vec<Data>, ArrayError> {
    let ids = call.dense(0)?;
    let [tokens, slots] = [call.shape_of(0)[0], call.shape_of(0)[1]];
    let mut offsets = vec![0u32; experts + 1];
    let mut position = vec![0u32; tokens * slots];
    let rows = call.produce(|out| {
        kernels::sort_by_expert(ids.as_slice(), slots, out, &mut offsets, &mut position);
    })?;
    let copy = |values: &[u32]| {
        let shape = Shape::from([values.len()]);
        call.produce_as(&shape, DType::U32, |out| out.copy_from_slice(values))
    };
    Ok(vec![rows, copy(&offsets)?, copy(&position)?])
}

pub(super) fn combine_experts(call: &Call<'_>) -> Result<Data, ArrayError> {
    let (y, position, weights) = (call.dense(0)?, call.dense(1)?, call.dense(2)?);
    let (slots, n) = (call.shape_of(2)[1], call.shape()[1]);
    call.produce(|out| {
        let (y, position, weights) = (y.as_slice(), position.as_slice(), weights.as_slice());
        kernels::combine_experts(call.kernels(), y, position, weights, slots, n, out);
    })
}
