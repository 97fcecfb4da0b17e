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

    /// Reads `x` [L, S * D].
    pub fn read(&self, x: &Array) -> Result<StreamsRead, LayerError> {
        let normed = ops::rms_norm(x, Some(&self.hc_norm), self.norm_offset, self.width, self.eps)?;
        let share = 1.0 / self.streams as f32;
        let (mix, gate) = match &self.block_inject_weight {
            Some(inject) => {
                let [mix, gate] = ops::linears(&normed, [&self.input_mix_weight_down, inject])?;
                (mix, Some(ops::scaled_sigmoid(&gate, share, 2.0)?))
            }
            None => (ops::linear(&normed, &self.input_mix_weight_down)?, None),
        };
        let mix = ops::linear(&ops::scaled_silu(&mix, share)?, &self.input_mix_weight_up)?;
        Ok(StreamsRead { input: ops::stream_mix(&mix, &normed, self.streams)?, gate })
    }
}

/// What was read from the streams.
pub struct StreamsRead {
    /// The input of the block, [L, D].
    pub input: Array,
    /// How much of the block's output each stream takes, [L, S]: 2 * sigmoid of a projection of the normed streams.
    gate: Option<Array>,
}

impl StreamsRead {
    /// Adds the block's output `y` [L, D] to each of the streams `x` that were read. After a final mixer nothing is added.
    pub fn write(&self, x: &Array, y: &Array) -> Result<Array, LayerError> {
        Ok(match &self.gate {
            Some(gate) => ops::stream_inject(x, y, gate)?,
            None => x.clone(),
        })
    }
}
