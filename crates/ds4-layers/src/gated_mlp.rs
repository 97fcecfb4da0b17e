//! A gated feed-forward network.

use ds4_array::Array;
use ds4_array::ops::{self, Weight};

use crate::{LayerError, Scope};

/// down(silu(gate(x)) * up(x)), with gates and values kept within a limit in families that have one.
pub struct GatedMlp {
    gate_proj: Weight,
    up_proj: Weight,
    down_proj: Weight,
    limit: Option<f32>,
}

impl GatedMlp {
    /// Loads `gate_proj`, `up_proj` and `down_proj` below `scope`.
    pub fn load(scope: &Scope<'_>, hidden: usize, inner: usize, limit: Option<f32>) -> Self {
        Self {
            gate_proj: scope.weight("gate_proj", inner, hidden),
            up_proj: scope.weight("up_proj", inner, hidden),
            down_proj: scope.weight("down_proj", hidden, inner),
            limit,
        }
    }

    /// `x` [L, H] through the network.
    pub fn forward(&self, x: &Array) -> Result<Array, LayerError> {
        let [gate, up] = ops::linears(x, [&self.gate_proj, &self.up_proj])?;
        Ok(ops::linear(&gated(&gate, &up, self.limit)?, &self.down_proj)?)
    }
}

/// silu(gate) * up, with gates of at most `limit` and values between -`limit` and `limit`.
pub(crate) fn gated(gate: &Array, up: &Array, limit: Option<f32>) -> Result<Array, LayerError> {
    Ok(match limit {
        Some(limit) => ops::swiglu_clamped(gate, up, limit)?,
        None => ops::swiglu(gate, up)?,
    })
}
