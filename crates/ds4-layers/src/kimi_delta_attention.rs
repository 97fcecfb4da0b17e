//! Kimi delta attention (KDA): a linear-attention layer like the gated delta net, in which every channel of a key has a
//! decay of its own.
//!
//! Source: Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture".

use ds4_array::Array;
use ds4_array::ops::{self, Weight};

use crate::cache::{DeltaCache, DeltaRows, RowTail};
use crate::{LayerError, Scope, Segment};

/// Added under the root of the norm of queries and keys, as in the reference.
const L2_NORM_EPS: f32 = 1e-6;

/// Sizes of the layer.
#[derive(Clone, Copy, Debug)]
pub struct KimiDeltaSizes {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Heads of queries, keys and values.
    pub heads: usize,
    /// Width of each of them, and of the inner layer of both gates.
    pub head_dim: usize,
    /// Taps of the causal convolutions.
    pub conv_kernel: usize,
    /// Least logarithm of a decay; `None` if it has no bound.
    pub lower_bound: Option<f32>,
}

impl KimiDeltaSizes {
    /// Channels of queries, of keys and of values.
    pub fn channels(&self) -> usize {
        self.heads * self.head_dim
    }
}

/// The layer.
pub struct KimiDeltaAttention {
    q_proj: Weight,
    k_proj: Weight,
    v_proj: Weight,
    /// [3 * C, K]: the filters of queries, keys and values.
    conv1d: Array,
    b_proj: Weight,
    f_a_proj: Weight,
    f_b_proj: Weight,
    dt_bias: Array,
    /// exp(A_log) of each channel's head.
    decay_rate: Array,
    g_a_proj: Weight,
    g_b_proj: Weight,
    o_norm: Array,
    o_proj: Weight,
    sizes: KimiDeltaSizes,
    eps: f32,
}

impl KimiDeltaAttention {
    /// Loads the tensors below `scope`; the convolutions are one tensor or three.
    pub fn load(scope: &Scope<'_>, sizes: KimiDeltaSizes, eps: f32) -> Self {
        let KimiDeltaSizes { hidden, heads, head_dim, conv_kernel, .. } = sizes;
        let channels = sizes.channels();
        let conv1d = if scope.has_weight("conv1d") {
            scope.conv1d(&["conv1d.weight"], 3 * channels, conv_kernel)
        } else {
            let parts = ["q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"];
            scope.conv1d(&parts, channels, conv_kernel)
        };
        Self {
            q_proj: scope.weight("q_proj", channels, hidden),
            k_proj: scope.weight("k_proj", channels, hidden),
            v_proj: scope.weight("v_proj", channels, hidden),
            conv1d,
            b_proj: scope.weight("b_proj", heads, hidden),
            f_a_proj: scope.weight("f_a_proj", head_dim, hidden),
            f_b_proj: scope.weight("f_b_proj", channels, head_dim),
            dt_bias: scope.map_f32("dt_bias", &[channels], |x| x),
            decay_rate: scope.spread_f32("A_log", heads, head_dim, f32::exp),
            g_a_proj: scope.weight("g_a_proj", head_dim, hidden),
            g_b_proj: scope.weight("g_b_proj", channels, head_dim),
            o_norm: scope.array("o_norm.weight", &[head_dim]),
            o_proj: scope.weight("o_proj", hidden, channels),
            sizes,
            eps,
        }
    }

    /// Its state before the first token.
    pub fn new_cache(&self) -> DeltaCache {
        let KimiDeltaSizes { heads, head_dim, conv_kernel, .. } = self.sizes;
        let stream = self.conv1d.stream();
        let conv = RowTail::new(stream, conv_kernel - 1, 3 * self.sizes.channels());
        DeltaCache::new(stream, conv, [heads, head_dim, head_dim], None)
    }

    /// `x` [N, H] through the layer; each segment continues its cache.
    pub fn forward(
        &self,
        x: &Array,
        segments: &[Segment],
        caches: &mut [&mut DeltaCache],
    ) -> Result<Array, LayerError> {
        let KimiDeltaSizes { head_dim, .. } = self.sizes;
        let weights = [&self.q_proj, &self.k_proj, &self.v_proj, &self.b_proj, &self.f_a_proj];
        let [q, k, v, beta, decay] = ops::linears(x, weights)?;
        let qkv = ops::concatenate(&[&q, &k, &v], 1)?;
        let beta = ops::sigmoid(&beta)?;
        let log_decay = self.log_decay(&decay)?;
        let [q, k, v] = self.convolved(&qkv, segments, caches)?;
        let rows = DeltaRows { qkv, recurrence: [q, k, v, log_decay, beta] };
        let values = DeltaCache::recur(caches, &rows, segments)?;
        let normed = ops::rms_norm(&values, Some(&self.o_norm), 0.0, head_dim, self.eps)?;
        let normed = ops::reshape(&normed, [x.shape()[0], self.sizes.channels()])?;
        // Not needed where only the state goes on.
        let gate = ops::linear(&ops::linear(x, &self.g_a_proj)?, &self.g_b_proj)?;
        Ok(ops::linear(&ops::sigmoid_gate(&normed, &gate)?, &self.o_proj)?)
    }

    /// Logarithm of the decay of every channel, [N, H, D], from the first half of its projection.
    fn log_decay(&self, narrow: &Array) -> Result<Array, LayerError> {
        let KimiDeltaSizes { heads, head_dim, lower_bound, .. } = self.sizes;
        let step = ops::linear(narrow, &self.f_b_proj)?;
        let step = ops::add(&step, &self.dt_bias)?;
        let log_decay = match lower_bound {
            Some(bound) => ops::scaled_sigmoid(&ops::mul(&step, &self.decay_rate)?, 1.0, bound)?,
            None => ops::neg(&ops::mul(&ops::softplus(&step)?, &self.decay_rate)?)?,
        };
        Ok(ops::reshape(&log_decay, [narrow.shape()[0], heads, head_dim])?)
    }

    /// Queries, keys and values, [N, H, D] each, out of the inputs of the convolutions [N, C].
    fn convolved(
        &self,
        qkv: &Array,
        segments: &[Segment],
        caches: &mut [&mut DeltaCache],
    ) -> Result<[Array; 3], LayerError> {
        let KimiDeltaSizes { heads, head_dim, .. } = self.sizes;
        let mixed = DeltaCache::convolve(caches, qkv, segments, &self.conv1d)?;
        let (tokens, channels) = (qkv.shape()[0], self.sizes.channels());
        let part = |index: usize| {
            ops::reshape(&ops::slice_columns(&mixed, index * channels, channels)?, [tokens, heads, head_dim])
        };
        let q = ops::l2_norm(&part(0)?, L2_NORM_EPS, (head_dim as f32).sqrt().recip())?;
        let k = ops::l2_norm(&part(1)?, L2_NORM_EPS, 1.0)?;
        Ok([q, k, part(2)?])
    }
}
