//! One key for each run of tokens: the rows of the run, or of it and the one before, weighted by a softmax that each
//! channel has of its own.

use ds4_array::ops::{self, Weight};
use ds4_array::{Array, DType};

use crate::cache::{CompleteRuns, CompressorCache};
use crate::{LayerError, Rope, Scope};

/// Sizes of a compressor.
#[derive(Clone, Copy, Debug)]
pub struct CompressorSizes {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of an entry, D.
    pub width: usize,
    /// Tokens of a run.
    pub rate: usize,
    /// Whether an entry is made of its own run and the one before. A token then has two rows: the first for the entry
    /// after its own run's, the second for its own.
    pub overlaps: bool,
}

impl CompressorSizes {
    /// Width of a token's rows side by side.
    fn row(&self) -> usize {
        if self.overlaps { 2 * self.width } else { self.width }
    }
}

/// The compressor of one layer.
pub struct KeyCompressor {
    kv_proj: Weight,
    gate_proj: Weight,
    position_bias: Array,
    kv_norm: Array,
    sizes: CompressorSizes,
    eps: f32,
}

impl KeyCompressor {
    /// Loads the tensors below `scope`.
    pub fn load(scope: &Scope<'_>, sizes: CompressorSizes, eps: f32) -> Self {
        let row = sizes.row();
        Self {
            kv_proj: scope.weight("kv_proj", row, sizes.hidden),
            gate_proj: scope.weight("gate_proj", row, sizes.hidden),
            position_bias: scope.map_f32("position_bias", &[sizes.rate, row], |x| x),
            kv_norm: scope.array("kv_norm.weight", &[sizes.width]),
            sizes,
            eps,
        }
    }

    /// Tokens of a run.
    pub fn rate(&self) -> usize {
        self.sizes.rate
    }

    /// A cache without tokens.
    pub fn new_cache(&self, stream: &ds4_array::Stream, dtype: DType) -> CompressorCache {
        let CompressorSizes { width, rate, overlaps, .. } = self.sizes;
        CompressorCache::new(stream, rate, width, 2 * self.sizes.row(), overlaps, dtype)
    }

    /// The raw rows of `x` [N, hidden]: values, then gates.
    pub fn project(&self, x: &Array) -> Result<Array, LayerError> {
        let [values, gates] = ops::linears(x, [&self.kv_proj, &self.gate_proj])?;
        Ok(ops::concatenate(&[&values, &gates], 1)?)
    }

    /// Adds raw rows of one sequence. The entry of a run is normed and rotated to the position of its first token.
    pub fn append(&self, cache: &mut CompressorCache, rows: &Array, rope: &Rope) -> Result<(), LayerError> {
        let CompressorSizes { width, rate, .. } = self.sizes;
        let Some(runs) = cache.push(rows)? else { return Ok(()) };
        let pooled = self.pool(&runs)?;
        let (first, count) = (cache.entries.len(), pooled.shape()[0]);
        let normed = ops::rms_norm(&pooled, Some(&self.kv_norm), 0.0, width, self.eps)?;
        let angles = rope.rows((0..count).map(|i| (first + i) * rate))?;
        let rotated = ops::rope_pairs(&ops::reshape(&normed, [count, 1, width])?, &angles.cos, &angles.sin)?;
        cache.entries.append(&ops::reshape(&rotated, [count, width])?)
    }

    fn pool(&self, runs: &CompleteRuns) -> Result<Array, LayerError> {
        let (rate, row) = (self.sizes.rate, self.sizes.row());
        let count = runs.rows.shape()[0] / rate;
        let values = ops::reshape(&ops::slice_columns(&runs.rows, 0, row)?, [count, rate, row])?;
        let gates = ops::reshape(&ops::slice_columns(&runs.rows, row, row)?, [count, rate * row])?;
        let bias = ops::reshape(&self.position_bias, [rate * row])?;
        let gates = ops::reshape(&ops::add(&gates, &bias)?, [count, rate, row])?;
        if !self.sizes.overlaps {
            return Ok(ops::gated_pool(&values, &gates)?);
        }
        // Before the first run of a sequence there is nothing, which a gate of minus infinity says.
        let values = self.with_previous(&values, runs.has_previous, 0.0)?;
        let gates = self.with_previous(&gates, runs.has_previous, f32::NEG_INFINITY)?;
        Ok(ops::gated_pool(&values, &gates)?)
    }

    /// For each run [rate, 2 D] the first rows of the run before it, or of nothing, and its own second rows: [2 rate, D].
    fn with_previous(&self, runs: &Array, has_previous: bool, nothing: f32) -> Result<Array, LayerError> {
        let CompressorSizes { width, rate, .. } = self.sizes;
        let skipped = usize::from(has_previous);
        let count = runs.shape()[0] - skipped;
        let own = ops::slice(runs, &[skipped, 0, width], [count, rate, width])?;
        let earlier = |count| ops::slice(runs, &[0, 0, 0], [count, rate, width]);
        let previous = if has_previous {
            earlier(count)?
        } else {
            let nothing = ops::fill(runs.stream(), [1, rate, width], DType::F32, nothing);
            match count {
                1 => nothing,
                _ => ops::concatenate(&[&nothing, &earlier(count - 1)?], 0)?,
            }
        };
        Ok(ops::concatenate(&[&previous, &own], 1)?)
    }
}
