//! Operations along a sequence.

use ds4_cpu_kernels as kernels;

use crate::ArrayError;
use crate::data::Data;

use super::Outputs;
use super::call::Call;

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

pub(super) fn causal_conv1d(call: &Call<'_>, dilation: usize, silu: bool) -> Result<Data, ArrayError> {
    let (history, x, weight) = (call.dense(0)?, call.dense(1)?, call.dense(2)?);
    let args = kernels::CausalConv1dArgs {
        history: history.as_slice(),
        x: x.as_slice(),
        weight: weight.as_slice(),
        channels: call.shape()[1],
        kernel: call.shape_of(2)[0],
        dilation,
        silu,
    };
    call.produce(|out| kernels::causal_conv1d(call.kernels(), &args, out))
}

pub(super) fn gated_delta(call: &mut Call<'_>) -> Result<Outputs, ArrayError> {
    if call.shape_of(3).len() == 3 {
        return kimi_delta(call);
    }
    let (mut state, before) = call.writable_or_new(5)?;
    let before = before.then(|| call.dense(5)).transpose()?;
    let [q, k, v] = [call.dense(0)?, call.dense(1)?, call.dense(2)?];
    let [g, beta] = [call.dense(3)?, call.dense(4)?];
    let next = Call::elements_mut(&mut state, call.shape_of(5))?;
    let args = kernels::GatedDeltaArgs {
        q: q.as_slice(),
        k: k.as_slice(),
        v: v.as_slice(),
        g: g.as_slice(),
        beta: beta.as_slice(),
        key_heads: call.shape_of(0)[1],
        value_heads: call.shape()[1],
        dk: call.shape_of(0)[2],
        dv: call.shape()[2],
        before: before.as_ref().map(|before| before.as_slice()),
    };
    let out = call.produce(|out| kernels::gated_delta(call.kernels(), &args, next, out))?;
    drop((q, k, v, g, beta, before));
    Ok(Outputs { first: out, further: vec![state] })
}

/// The same with a decay for each channel of the keys.
fn kimi_delta(call: &mut Call<'_>) -> Result<Outputs, ArrayError> {
    let (mut state, before) = call.writable_or_new(5)?;
    let before = before.then(|| call.dense(5)).transpose()?;
    let [q, k, v] = [call.dense(0)?, call.dense(1)?, call.dense(2)?];
    let [g, beta] = [call.dense(3)?, call.dense(4)?];
    let next = Call::elements_mut(&mut state, call.shape_of(5))?;
    let args = kernels::KimiDeltaArgs {
        q: q.as_slice(),
        k: k.as_slice(),
        v: v.as_slice(),
        g: g.as_slice(),
        beta: beta.as_slice(),
        heads: call.shape()[1],
        dk: call.shape_of(0)[2],
        dv: call.shape()[2],
        before: before.as_ref().map(|before| before.as_slice()),
    };
    let out = call.produce(|out| kernels::kimi_delta(call.kernels(), &args, next, out))?;
    drop((q, k, v, g, beta, before));
    Ok(Outputs { first: out, further: vec![state] })
}
