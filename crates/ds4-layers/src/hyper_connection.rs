//! Gated hyper-connections: several residual streams, mixed into one input for a block and written back with a gate
//! for each stream.

use ds4_array::Array;
use ds4_array::ops::{self, Weight};

use crate::{LayerError, Scope};

/// The read side of a hyper-connection, and the gates of its write side. S streams of width D.
pub struct GatedResidual {
    hc_norm: Array,
    input_mix_weight_down: Weight,
    input_mix_weight_up: Weight,
    block_inject_weight: Option<Weight>,
    streams: usize,
    width: usize,
    norm_offset: f32,
    eps: f32,
}

impl GatedResidual {
    /// Loads the tensors below `scope`. Without `inject` it is a final mixer, which is never written back to.
    pub fn load(
        scope: &Scope<'_>,
        [streams, width, rank]: [usize; 3],
        norm_offset: f32,
        eps: f32,
        inject: bool,
    ) -> Self {
        let wide = streams * width;
        Self {
            hc_norm: scope.array("hc_norm.weight", &[wide]),
            input_mix_weight_down: scope.weight("input_mix_weight_down", rank, wide),
            input_mix_weight_up: scope.weight("input_mix_weight_up", wide, rank),
            block_inject_weight: inject.then(|| scope.weight("block_inject_weight", streams, wide)),
            streams,
            width,
            norm_offset,
            eps,
        }
    }

    /// Reads `x` [L, S * D]: the block's input [L, D], and the normed streams for [`write`](Self::write).
    pub fn read(&self, x: &Array) -> Result<(Array, Array), LayerError> {
        let normed = ops::rms_norm(x, Some(&self.hc_norm), self.norm_offset, self.width, self.eps)?;
        let share = 1.0 / self.streams as f32;
        let mix = ops::scaled_silu(&ops::linear(&normed, &self.input_mix_weight_down)?, share)?;
        let mix = ops::linear(&mix, &self.input_mix_weight_up)?;
        Ok((ops::stream_mix(&mix, &normed, self.streams)?, normed))
    }

    /// Adds the block's output `y` [L, D] to each stream of `x`, weighted by 2 * sigmoid of a projection of `normed`.
    pub fn write(&self, x: &Array, normed: &Array, y: &Array) -> Result<Array, LayerError> {
        let Some(weight) = &self.block_inject_weight else { return Ok(x.clone()) };
        let share = 1.0 / self.streams as f32;
        let gate = ops::scaled_sigmoid(&ops::linear(normed, weight)?, share, 2.0)?;
        Ok(ops::stream_inject(x, y, &gate)?)
    }
}
