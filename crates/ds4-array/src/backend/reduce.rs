//! Reductions, softmax and selection over the last axis.

use ds4_cpu_kernels as kernels;

use crate::ArrayError;
use crate::data::Data;
use crate::primitive::ReduceOp;

use super::call::Call;

pub(super) fn reduce(call: &Call<'_>, op: ReduceOp) -> Result<Data, ArrayError> {
    let x = call.dense(0)?;
    call.produce(|out| kernels::reduce(call.kernels(), op, x.as_slice(), out))
}

pub(super) fn mean_middle(call: &Call<'_>) -> Result<Data, ArrayError> {
    let x = call.dense(0)?;
    let shape = call.shape_of(0);
    call.produce(|out| kernels::mean_middle(call.kernels(), x.as_slice(), shape[1], shape[2], out))
}

pub(super) fn softmax(call: &Call<'_>) -> Result<Data, ArrayError> {
    let x = call.dense(0)?;
    call.produce(|out| kernels::softmax(call.kernels(), x.as_slice(), call.shape().width(), out))
}

pub(super) fn top_k(call: &Call<'_>, k: usize) -> Result<Data, ArrayError> {
    let x = call.dense(0)?;
    call.produce(|out| kernels::top_k(call.kernels(), x.as_slice(), call.shape_of(0).width(), k, out))
}

pub(super) fn keep_best_groups(call: &Call<'_>, groups: usize, keep: usize) -> Result<Data, ArrayError> {
    let scores = call.dense(0)?;
    let experts = call.shape().width();
    call.produce(|out| {
        kernels::keep_best_groups(call.kernels(), scores.as_slice(), experts, groups, keep, out);
    })
}

pub(super) fn take_along(call: &Call<'_>) -> Result<Data, ArrayError> {
    let (values, ids) = (call.dense(0)?, call.dense(1)?);
    let (values, ids): (&[f32], &[u32]) = (values.as_slice(), ids.as_slice());
    let (width, picks) = (call.shape_of(0).width(), call.shape().width());
    call.produce(|out: &mut [f32]| {
        for ((row, ids), out) in
            values.chunks_exact(width).zip(ids.chunks_exact(picks)).zip(out.chunks_exact_mut(picks))
        {
            out.iter_mut().zip(ids).for_each(|(out, &id)| *out = row[id as usize]);
        }
    })
}
