//! Gated delta net: a linear-attention layer whose state is one matrix for each head.

use ds4_array::Array;
use ds4_array::ops::{self, Weight};

use crate::cache::{DeltaCache, DeltaRows};
use crate::{LayerError, Scope, Segment};

/// Added under the root of the norm of queries and keys, as in the reference.
const L2_NORM_EPS: f32 = 1e-6;

/// Sizes of the layer.
#[derive(Clone, Copy, Debug)]
pub struct GatedDeltaSizes {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query and key heads.
    pub key_heads: usize,
    /// Value heads, a multiple of the key heads.
    pub value_heads: usize,
    /// Width of a query or key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Taps of the causal convolution.
    pub conv_kernel: usize,
}

impl GatedDeltaSizes {
    /// Channels of the convolution: queries, keys and values side by side.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }
}

/// Activation of the output gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateActivation {
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// x * sigmoid(x).
    Silu,
}

/// The layer.
pub struct GatedDeltaNet {
    in_proj_qkv: Weight,
    in_proj_z: Weight,
    in_proj_b: Weight,
    in_proj_a: Weight,
    conv1d: Array,
    dt_bias: Array,
    /// -exp(A_log): what the step is multiplied with to give the logarithm of the decay.
    decay_rate: Array,
    norm: Array,
    out_proj: Weight,
    sizes: GatedDeltaSizes,
    activation: GateActivation,
    eps: f32,
}

impl GatedDeltaNet {
    /// Loads the tensors below `scope`.
    pub fn load(scope: &Scope<'_>, sizes: GatedDeltaSizes, activation: GateActivation, eps: f32) -> Self {
        let GatedDeltaSizes { hidden, value_heads, value_dim, conv_kernel, .. } = sizes;
        let channels = sizes.channels();
        Self {
            in_proj_qkv: scope.weight("in_proj_qkv", channels, hidden),
            in_proj_z: scope.weight("in_proj_z", value_heads * value_dim, hidden),
            in_proj_b: scope.weight("in_proj_b", value_heads, hidden),
            in_proj_a: scope.weight("in_proj_a", value_heads, hidden),
            conv1d: scope.conv1d(&["conv1d.weight"], channels, conv_kernel),
            dt_bias: scope.map_f32("dt_bias", &[value_heads], |x| x),
            decay_rate: scope.map_f32("A_log", &[value_heads], |x| -x.exp()),
            norm: scope.array("norm.weight", &[value_dim]),
            out_proj: scope.weight("out_proj", hidden, value_heads * value_dim),
            sizes,
            activation,
            eps,
        }
    }

    /// `x` [N, H] through the layer; each segment continues its cache.
    pub fn forward(
        &self,
        x: &Array,
        segments: &[Segment],
        caches: &mut [&mut DeltaCache],
    ) -> Result<Array, LayerError> {
        let GatedDeltaSizes { value_heads, value_dim, .. } = self.sizes;
        let [qkv, b, a] = ops::linears(x, [&self.in_proj_qkv, &self.in_proj_b, &self.in_proj_a])?;
        let beta = ops::sigmoid(&b)?;
        let step = ops::softplus(&ops::add(&a, &self.dt_bias)?)?;
        let log_decay = ops::mul(&step, &self.decay_rate)?;
        let [q, k, v] = self.convolved(&qkv, segments, caches)?;
        let rows = DeltaRows { qkv, recurrence: [q, k, v, log_decay, beta] };
        let values = DeltaCache::recur(caches, &rows, segments)?;
        let normed = ops::rms_norm(&values, Some(&self.norm), 0.0, value_dim, self.eps)?;
        let normed = ops::reshape(&normed, [x.shape()[0], value_heads * value_dim])?;
        // Not needed where only the state goes on.
        let z = ops::linear(x, &self.in_proj_z)?;
        let gated = match self.activation {
            GateActivation::Sigmoid => ops::sigmoid_gate(&normed, &z)?,
            GateActivation::Silu => ops::swiglu(&z, &normed)?,
        };
        Ok(ops::linear(&gated, &self.out_proj)?)
    }

    /// Queries, keys and values, [N, heads, D] each, out of the inputs of the convolution [N, C].
    fn convolved(
        &self,
        qkv: &Array,
        segments: &[Segment],
        caches: &mut [&mut DeltaCache],
    ) -> Result<[Array; 3], LayerError> {
        let GatedDeltaSizes { key_heads, value_heads, key_dim, value_dim, .. } = self.sizes;
        let mixed = DeltaCache::convolve(caches, qkv, segments, &self.conv1d)?;
        let (tokens, keys) = (qkv.shape()[0], key_heads * key_dim);
        let heads = |start, heads, dim| {
            ops::reshape(&ops::slice_columns(&mixed, start, heads * dim)?, [tokens, heads, dim])
        };
        let q = ops::l2_norm(&heads(0, key_heads, key_dim)?, L2_NORM_EPS, (key_dim as f32).sqrt().recip())?;
        let k = ops::l2_norm(&heads(keys, key_heads, key_dim)?, L2_NORM_EPS, 1.0)?;
        Ok([q, k, heads(2 * keys, value_heads, value_dim)?])
    }
}
