//! Operations along a sequence.

use std::ops::Range;

use ds4_cpu_kernels as kernels;
use smallvec::SmallVec;

use crate::ArrayError;
use crate::data::{Data, Storage};

use super::Outputs;
use super::call::{Call, Dense};

/// Something for each sequence. A single one needs no memory of its own.
type Each<T> = SmallVec<[T; 1]>;

pub(super) fn rope(call: &Call<'_>, dims: usize) -> Result<Data, ArrayError> {
    let (x, cos, sin) = (call.dense(0)?, call.dense(1)?, call.dense(2)?);
    let [heads, d] = [call.shape()[1], call.shape()[2]];
    call.produce(|out| {
        kernels::rope(call.kernels(), x.as_slice(), cos.as_slice(), sin.as_slice(), heads, d, dims, out);
    })
}

pub(super) fn rope_pairs(call: &Call<'_>, dims: usize) -> Result<Data, ArrayError> {
    let (x, cos, sin) = (call.dense(0)?, call.dense(1)?, call.dense(2)?);
    let [heads, d] = [call.shape()[1], call.shape()[2]];
    call.produce(|out| {
        let (x, cos, sin) = (x.as_slice(), cos.as_slice(), sin.as_slice());
        kernels::rope_pairs(call.kernels(), x, cos, sin, heads, d, dims, out);
    })
}

pub(super) fn causal_conv1d(
    call: &Call<'_>,
    dilation: usize,
    silu: bool,
    rows: &[usize],
) -> Result<Outputs, ArrayError> {
    let (x, weight) = (call.dense(0)?, call.dense(1)?);
    let args = kernels::CausalConv1dArgs {
        x: x.as_slice(),
        weight: weight.as_slice(),
        channels: call.shape()[1],
        kernel: call.shape_of(1)[0],
        dilation,
        silu,
    };
    let histories = (0..rows.len()).map(|i| call.dense(2 + i)).collect::<Result<Each<_>, _>>()?;
    let next = |i: usize| call.buffer(call.shape_of(2 + i).elements(), call.dtype_of(2 + i));
    let mut next = (0..rows.len()).map(next).collect::<Result<Each<_>, _>>()?;
    let mut sequences: Each<_> = token_ranges(rows)
        .zip(histories.iter().zip(&mut next))
        .map(|(tokens, (history, next))| {
            kernels::ConvSequence::new(tokens, history.as_slice(), bytemuck::cast_slice_mut(next.bytes_mut()))
        })
        .collect();
    let first = call.produce(|out| kernels::causal_conv1d(call.kernels(), &args, &mut sequences, out))?;
    drop(sequences);
    let dense = |(i, buffer)| Data::dense(Storage::Owned(buffer), call.shape_of(2 + i));
    Ok(Outputs { first, further: next.into_iter().enumerate().map(dense).collect() })
}

/// Inputs of a delta rule before its states.
const STATES: usize = 5;

pub(super) fn gated_delta(call: &mut Call<'_>, rows: &[usize]) -> Result<Outputs, ArrayError> {
    let mut states =
        (0..rows.len()).map(|i| call.writable_or_new(STATES + i)).collect::<Result<Each<_>, _>>()?;
    let before =
        |(i, (_, is_new)): (usize, &(Data, bool))| is_new.then(|| call.dense(STATES + i)).transpose();
    let before = states.iter().enumerate().map(before).collect::<Result<Each<_>, _>>()?;
    let [q, k, v] = [call.dense(0)?, call.dense(1)?, call.dense(2)?];
    let [g, beta] = [call.dense(3)?, call.dense(4)?];
    let mut sequences = Each::new();
    for (i, ((tokens, before), (state, _))) in token_ranges(rows).zip(&before).zip(&mut states).enumerate() {
        let state = Call::elements_mut(state, call.shape_of(STATES + i))?;
        sequences.push(kernels::DeltaSequence::new(tokens, before.as_ref().map(Dense::as_slice), state));
    }
    let (dk, dv) = (call.shape_of(0)[2], call.shape()[2]);
    let first = call.produce(|out| {
        let (q, k, v) = (q.as_slice(), k.as_slice(), v.as_slice());
        let (g, beta) = (g.as_slice(), beta.as_slice());
        if call.shape_of(3).len() == 3 {
            let args = kernels::KimiDeltaArgs { q, k, v, g, beta, heads: call.shape()[1], dk, dv };
            kernels::kimi_delta(call.kernels(), &args, &mut sequences, out);
        } else {
            let (key_heads, value_heads) = (call.shape_of(0)[1], call.shape()[1]);
            let args = kernels::GatedDeltaArgs { q, k, v, g, beta, key_heads, value_heads, dk, dv };
            kernels::gated_delta(call.kernels(), &args, &mut sequences, out);
        }
    })?;
    drop(sequences);
    drop((q, k, v, g, beta, before));
    Ok(Outputs { first, further: states.into_iter().map(|(state, _)| state).collect() })
}

/// Where the tokens of each sequence are among those of all.
fn token_ranges(rows: &[usize]) -> impl Iterator<Item = Range<usize>> {
    rows.iter().scan(0, |end, rows| {
        let first = *end;
        *end += rows;
        Some(first..*end)
    })
}
