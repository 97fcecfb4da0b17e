//! Angles of rotary position embeddings.

use ds4_array::{Array, Stream};

use crate::LayerError;

/// Frequencies of one kind of rotary embedding.
#[derive(Clone, Debug)]
pub struct Rope {
    stream: Stream,
    inverse_frequencies: Vec<f32>,
}

/// Cosines and sines of a run of positions, [L, R/2] float32 each.
#[derive(Clone, Debug)]
pub struct RopeRows {
    /// Cosines.
    pub cos: Array,
    /// Sines.
    pub sin: Array,
}

impl Rope {
    /// Frequencies theta^(-2i / dims) for i below dims / 2, in float32 as the reference computes them.
    pub fn new(stream: &Stream, theta: f32, dims: usize) -> Self {
        let inverse_frequencies =
            (0..dims / 2).map(|i| 1.0 / theta.powf((2 * i) as f32 / dims as f32)).collect();
        Self { stream: stream.clone(), inverse_frequencies }
    }

    /// The angles of these positions. Angles are float32 products, as in the reference: at long contexts their
    /// rounding is visible in the logits.
    pub fn rows(&self, positions: impl ExactSizeIterator<Item = usize>) -> Result<RopeRows, LayerError> {
        let shape = [positions.len(), self.inverse_frequencies.len()];
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in positions {
            for &frequency in &self.inverse_frequencies {
                let (s, c) = (position as f32 * frequency).sin_cos();
                cos.push(c);
                sin.push(s);
            }
        }
        Ok(RopeRows {
            cos: Array::from_slice(&self.stream, &cos, &shape)?,
            sin: Array::from_slice(&self.stream, &sin, &shape)?,
        })
    }
}
