//! Operations that walk along a sequence and carry state from token to token.

use ds4_dtype::DType;

use crate::primitive::{Primitive, SequenceRows};
use crate::{Array, ArrayError};

use super::check;

/// Depthwise causal convolution of a batch of sequences: y[t, c] = sum over j of weight[j, c] * u[t + j * dilation, c], where u
/// is a sequence's history [(K - 1) * dilation, C] followed by its rows of x [L, C].
///
/// `rows` tells how many of the rows each sequence has, one after the other. `weight` is [K, C] float32; `silu` is applied to
/// the result if asked for. Returns y [L, C] and the sequences' next histories.
pub fn causal_conv1d(
    x: &Array,
    histories: &[&Array],
    rows: impl IntoIterator<Item = usize>,
    weight: &Array,
    dilation: usize,
    silu: bool,
) -> Result<(Array, Vec<Array>), ArrayError> {
    let op = "causal_conv1d";
    check::f32(op, "x", x)?;
    check::f32(op, "weight", weight)?;
    check::shape(op, "x", x, &[None, None])?;
    check::shape(op, "weight", weight, &[None, Some(x.shape()[1])])?;
    let reach = (weight.shape()[0].max(1) - 1) * dilation;
    for history in histories {
        check::f32(op, "history", history)?;
        check::shape(op, "history", history, &[Some(reach), Some(x.shape()[1])])?;
    }
    let rows = sequence_rows(op, x.shape()[0], histories, rows)?;
    let inputs = [x, weight].into_iter().chain(histories.iter().copied()).cloned();
    let primitive = Primitive::CausalConv { dilation, silu, rows };
    let out = Array::lazy(x.stream(), *x.shape(), x.dtype(), primitive, inputs);
    let next = outputs(&out, histories);
    Ok((out, next))
}

/// The gated delta rule over a batch of sequences. For each token, in order, and each value head (head h uses key head
/// h / (Hv / Hk)): S *= exp(g); S += k (beta (v - S^T k))^T; out = S^T q, with S the state of the token's sequence.
///
/// `q`, `k` [L, Hk, Dk] are normalised already, `v` [L, Hv, Dv], `g` (logarithm of the decay) and `beta` [L, Hv], each state
/// [Hv, Dk, Dv]; `rows` tells how many of the tokens each sequence has, one after the other. Returns out [L, Hv, Dv] and the
/// new states. Source: Yang et al., "Gated Delta Networks".
///
/// With `g` [L, Hv, Dk] each row of the state has a decay of its own, and there must be as many key heads as value heads.
/// Source: Kimi Team, "Kimi Linear".
pub fn gated_delta(
    [q, k, v, g, beta]: [&Array; 5],
    states: &[&Array],
    rows: impl IntoIterator<Item = usize>,
) -> Result<(Array, Vec<Array>), ArrayError> {
    let op = "gated_delta";
    for (argument, array) in [("q", q), ("k", k), ("v", v), ("g", g), ("beta", beta)] {
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
    for state in states {
        check::f32(op, "state", state)?;
        check::shape(op, "state", state, &[Some(heads), Some(key_dim), Some(dim)])?;
    }
    let rows = sequence_rows(op, tokens, states, rows)?;
    let inputs = [q, k, v, g, beta].into_iter().chain(states.iter().copied()).cloned();
    let out = Array::lazy(q.stream(), *v.shape(), DType::F32, Primitive::GatedDelta { rows }, inputs);
    let next = outputs(&out, states);
    Ok((out, next))
}

/// `rows`, one number for each of `sequences`, which together have `all` rows.
fn sequence_rows(
    op: &'static str,
    all: usize,
    sequences: &[&Array],
    rows: impl IntoIterator<Item = usize>,
) -> Result<SequenceRows, ArrayError> {
    let rows: SequenceRows = rows.into_iter().collect();
    check::value(op, "sequences", rows.len(), rows.len() == sequences.len(), || sequences.len().to_string())?;
    let sum = rows.iter().sum();
    check::value(op, "rows of all sequences", sum, sum == all, || all.to_string())?;
    Ok(rows)
}

/// The outputs of a node after its first, shaped like `like`.
fn outputs(producer: &Array, like: &[&Array]) -> Vec<Array> {
    let output = |(i, like): (usize, &&Array)| producer.further(i + 1, *like.shape(), like.dtype());
    like.iter().enumerate().map(output).collect()
}
