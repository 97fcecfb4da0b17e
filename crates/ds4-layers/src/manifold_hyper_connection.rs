//! Manifold-constrained hyper-connections (mHC): several residual streams that a block reads a weighted sum of, and
//! that are mixed by a nearly doubly stochastic matrix when its output is written back.
//!
//! Source: Xie et al., "mHC: Manifold-Constrained Hyper-Connections".

use ds4_array::Array;
use ds4_array::ops::{self, Weight};

use crate::{LayerError, Scope};

/// Sizes and constants of the hyper-connections of a model.
#[derive(Clone, Copy, Debug)]
pub struct ManifoldSizes {
    /// S, the number of residual streams.
    pub streams: usize,
    /// D, the width of a stream.
    pub width: usize,
    /// Rounds of Sinkhorn normalisation.
    pub iterations: usize,
    /// Floor of the normalisation, also added to the weights of reading.
    pub eps: f32,
    /// Epsilon of the norm over all streams.
    pub norm_eps: f32,
}

/// The hyper-connection around one block.
pub struct ManifoldHyperConnection {
    function: Weight,
    base: Array,
    scale: Array,
    sizes: ManifoldSizes,
}

impl ManifoldHyperConnection {
    /// Loads `fn` [(2 + S) * S, S * D], `base` [(2 + S) * S] and `scale` \[3\] below `scope`.
    pub fn load(scope: &Scope<'_>, sizes: ManifoldSizes) -> Self {
        let outputs = (2 + sizes.streams) * sizes.streams;
        Self {
            function: scope.weight("fn", outputs, sizes.streams * sizes.width),
            base: scope.map_f32("base", &[outputs], |x| x),
            scale: scope.map_f32("scale", &[3], |x| x),
            sizes,
        }
    }

    /// Reads `x` [L, S * D]: the block's input [L, D], and the coefficients for [`write`](Self::write).
    pub fn read(&self, x: &Array) -> Result<(Array, Array), LayerError> {
        let ManifoldSizes { streams, iterations, eps, .. } = self.sizes;
        let mixes = project(x, &self.function, &self.sizes)?;
        let coefficients =
            ops::manifold_coefficients(&mixes, &self.scale, &self.base, streams, iterations, eps)?;
        Ok((ops::stream_collapse(x, &coefficients, streams)?, coefficients))
    }

    /// Mixes the streams of `x` and adds the block's output `y` [L, D] to each: [L, S * D].
    pub fn write(&self, x: &Array, coefficients: &Array, y: &Array) -> Result<Array, LayerError> {
        Ok(ops::stream_expand(x, y, coefficients, self.sizes.streams)?)
    }
}

/// The weighted sum of the streams after the last layer, of families that learn its weights.
pub struct ManifoldHead {
    function: Weight,
    base: Array,
    scale: Array,
    sizes: ManifoldSizes,
}

impl ManifoldHead {
    /// Loads `hc_fn` [S, S * D], `hc_base` \[S\] and `hc_scale` \[1\] below `scope`.
    pub fn load(scope: &Scope<'_>, sizes: ManifoldSizes) -> Self {
        let streams = sizes.streams;
        Self {
            function: scope.weight("hc_fn", streams, streams * sizes.width),
            base: scope.map_f32("hc_base", &[streams], |x| x),
            scale: scope.map_f32("hc_scale", &[1], |x| x),
            sizes,
        }
    }

    /// One row [L, D] from the streams `x` [L, S * D].
    pub fn read(&self, x: &Array) -> Result<Array, LayerError> {
        let mixes = project(x, &self.function, &self.sizes)?;
        // A row of one scale for each stream, so that it is broadcast over rows.
        let scale = ops::concatenate(&vec![&self.scale; self.sizes.streams], 0)?;
        let gates = ops::sigmoid(&ops::add(&ops::mul(&mixes, &scale)?, &self.base)?)?;
        let floor = ops::fill(x.stream(), [self.sizes.streams], ds4_array::DType::F32, self.sizes.eps);
        Ok(ops::stream_collapse(x, &ops::add(&gates, &floor)?, self.sizes.streams)?)
    }
}

/// A projection of the streams `x` [L, S * D], normed together.
fn project(x: &Array, function: &Weight, sizes: &ManifoldSizes) -> Result<Array, LayerError> {
    let normed = ops::rms_norm(x, None, 0.0, sizes.streams * sizes.width, sizes.norm_eps)?;
    Ok(ops::linear(&normed, function)?)
}
