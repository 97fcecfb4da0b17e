//! Angles of rotary position embeddings.

use ds4_array::{Array, Stream};

use crate::LayerError;

/// Frequencies of one kind of rotary embedding.
#[derive(Clone, Debug)]
pub struct Rope {
    stream: Stream,
    inverse_frequencies: Vec<f32>,
}

/// How YaRN stretches frequencies.
#[derive(Clone, Copy, Debug)]
pub struct Yarn {
    /// How many times the original context is exceeded.
    pub factor: f32,
    /// Tokens of the original context.
    pub original_context: usize,
    /// Turns over the original context from which on a frequency stays as it is.
    pub beta_fast: f64,
    /// Turns up to which it is divided by the whole factor.
    pub beta_slow: f64,
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

    /// The same frequencies stretched for longer contexts: slow ones are divided by the factor, fast ones stay, and those
    /// between are blended. Source: Peng et al., "YaRN"; attention is not rescaled.
    pub fn yarn(stream: &Stream, theta: f32, dims: usize, yarn: &Yarn) -> Self {
        // The index at which a frequency turns so many times over the original context.
        let index_of = |turns: f64| {
            let length = yarn.original_context as f64 / (turns * 2.0 * std::f64::consts::PI);
            dims as f64 * length.ln() / (2.0 * f64::from(theta).ln())
        };
        let low = index_of(yarn.beta_fast).floor().max(0.0);
        let mut high = index_of(yarn.beta_slow).ceil().min(dims as f64 - 1.0);
        if low == high {
            high += 0.001;
        }
        let frequency = |i: usize| {
            let period = theta.powf((2 * i) as f32 / dims as f32);
            let stretched = ((i as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
            1.0 / (yarn.factor * period) * stretched + 1.0 / period * (1.0 - stretched)
        };
        Self { stream: stream.clone(), inverse_frequencies: (0..dims / 2).map(frequency).collect() }
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
