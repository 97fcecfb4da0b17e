//! Operations that walk along a sequence and carry state from token to token.

use ds4_dtype::DType;

use crate::primitive::Primitive;
use crate::{Array, ArrayError};

use super::check;

/// Depthwise causal convolution: y[t, c] = sum over j of weight[j, c] * u[t + j * dilation, c], where u is `history`
/// [(K - 1) * dilation, C] followed by x [L, C]. `weight` is [K, C] float32; `silu` is applied to the result if asked for.
pub fn causal_conv1d(
    history: &Array,
    x: &Array,
    weight: &Array,
    dilation: usize,
    silu: bool,
) -> Result<Array, ArrayError> {
    let op = "causal_conv1d";
    check::f32(op, "x", x)?;
    check::f32(op, "history", history)?;
    check::f32(op, "weight", weight)?;
    check::shape(op, "x", x, &[None, None])?;
    check::shape(op, "weight", weight, &[None, Some(x.shape()[1])])?;
    let rows = (weight.shape()[0].max(1) - 1) * dilation;
    check::shape(op, "history", history, &[Some(rows), Some(x.shape()[1])])?;
    let inputs = [history.clone(), x.clone(), weight.clone()];
    Ok(Array::lazy(x.stream(), *x.shape(), x.dtype(), Primitive::CausalConv { dilation, silu }, inputs))
}

/// The gated delta rule. For each token, in order, and each value head (head h uses key head h / (Hv / Hk)):
/// S *= exp(g); S += k (beta (v - S^T k))^T; out = S^T q.
///
/// `q`, `k` [L, Hk, Dk] are normalised already, `v` [L, Hv, Dv], `g` (logarithm of the decay) and `beta` [L, Hv],
/// `state` [Hv, Dk, Dv]. Returns out [L, Hv, Dv] and the new state. Source: Yang et al., "Gated Delta Networks".
///
/// With `g` [L, Hv, Dk] each row of the state has a decay of its own, and there must be as many key heads as value heads.
/// Source: Kimi Team, "Kimi Linear".
pub fn gated_delta(
    q: &Array,
    k: &Array,
    v: &Array,
    g: &Array,
    beta: &Array,
    state: &Array,
) -> Result<(Array, Array), ArrayError> {
    let op = "gated_delta";
    for (argument, array) in [("q", q), ("k", k), ("v", v), ("g", g), ("beta", beta), ("state", state)] {
        check::f32(op, argument, array)?;
    }
    check::shape(op, "q", q, &[None, None, None])?;
    let [tokens, key_heads, key_dim] = [q.shape()[0], q.shape()[1], q.shape()[2]];
    check::shape(op, "k", k, &[Some(tokens), Some(key_heads), Some(key_dim)])?;
    check::shape(op, "v", v, &[Some(tokens), None, None])?;
    let [heads, dim] = [v.shape()[1], v.shape()[2]];
    check::value(op, "value heads", heads, key_heads > 0 && heads % key_heads == 0, || {
        format!("a multiple of {key_heads}")
    })?;
    if g.shape().len() == 3 {
        check::value(op, "key heads", key_heads, key_heads == heads, || heads.to_string())?;
        check::shape(op, "g", g, &[Some(tokens), Some(heads), Some(key_dim)])?;
    } else {
        check::shape(op, "g", g, &[Some(tokens), Some(heads)])?;
    }
    check::shape(op, "beta", beta, &[Some(tokens), Some(heads)])?;
    check::shape(op, "state", state, &[Some(heads), Some(key_dim), Some(dim)])?;
    let inputs = [q, k, v, g, beta, state].map(Array::clone);
    let out = Array::lazy(q.stream(), *v.shape(), DType::F32, Primitive::GatedDelta, inputs);
    let next = output(&out, 1, state);
    Ok((out, next))
}

/// A further output of a node, shaped like `like`.
pub(super) fn output(producer: &Array, index: usize, like: &Array) -> Array {
    let primitive = Primitive::Output { index };
    Array::lazy(producer.stream(), *like.shape(), like.dtype(), primitive, [producer.clone()])
}
