//! The sampler of the plain decode loop: shaping, random stream and token counts together.

use crate::{
    RandomState, RandomStream, SamplerConfig, SamplingError, Shaper, SparseDistribution, TokenCounts,
};

/// Draws tokens from rows of logits for one answer.
///
/// All vectors it needs are kept between rows: after the first row of a vocabulary nothing is allocated (penalty counts
/// aside).
///
/// ```
/// use ds4_sampling::{Sampler, SamplerConfig};
///
/// let mut sampler = Sampler::new(SamplerConfig { temperature: 1.0, top_k: 2, seed: 7, ..SamplerConfig::default() })?;
/// let token = sampler.sample(&[0.5, 2.0, 1.5])?;
/// assert!(token == 1 || token == 2);
/// sampler.record(token);
/// # Ok::<(), ds4_sampling::SamplingError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Sampler {
    shaper: Shaper,
    stream: RandomStream,
    counts: TokenCounts,
}

/// What changes in a [`Sampler`] during an answer, for snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplerState {
    /// Position of the random stream.
    pub random: RandomState,
    /// Tokens generated so far.
    pub counts: TokenCounts,
}

impl Sampler {
    /// A sampler at the start of an answer; errors name the invalid parameter.
    pub fn new(config: SamplerConfig) -> Result<Self, SamplingError> {
        let stream = RandomStream::for_rule(config.rule, config.seed);
        Ok(Self { shaper: Shaper::new(config)?, stream, counts: TokenCounts::default() })
    }

    /// The parameters.
    pub fn config(&self) -> &SamplerConfig {
        self.shaper.config()
    }

    /// Draws the next token. Greedy decoding draws no random number, anything else exactly one.
    ///
    /// The token is not counted for penalties; call [`Self::record`] once it is part of the answer.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SamplingError> {
        self.shaper.draw(logits, &self.counts, &mut self.stream)
    }

    /// Counts a generated token for the penalties of later rows.
    pub fn record(&mut self, token: u32) {
        self.counts.record(token);
    }

    /// The distribution [`Self::sample`] would draw from. Draws nothing.
    pub fn distribution(&mut self, logits: &[f32]) -> Result<SparseDistribution, SamplingError> {
        self.shaper.shape(logits, &self.counts).cloned()
    }

    /// The part to save in a snapshot.
    pub fn state(&self) -> SamplerState {
        SamplerState { random: self.stream.state(), counts: self.counts.clone() }
    }

    /// Continues from a saved state.
    pub fn restore(&mut self, state: SamplerState) {
        self.stream = RandomStream::from_state(state.random);
        self.counts = state.counts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SamplerRule;

    fn row() -> Vec<f32> {
        (0..50).map(|i| ((i * 37 % 50) as f32) / 10.0).collect()
    }

    #[test]
    fn greedy_takes_the_first_maximum_and_no_random_number() {
        for rule in [SamplerRule::Mtplx, SamplerRule::Ds4] {
            let mut sampler = Sampler::new(SamplerConfig { rule, ..SamplerConfig::default() }).unwrap();
            let before = sampler.state();
            assert_eq!(sampler.sample(&[0.0, 3.0, 3.0]).unwrap(), 1);
            assert_eq!(sampler.state(), before);
        }
    }

    #[test]
    fn a_restored_sampler_repeats_the_rest_of_the_answer() {
        for rule in [SamplerRule::Mtplx, SamplerRule::Ds4] {
            let config = SamplerConfig {
                temperature: 1.0,
                top_p: 0.95,
                presence_penalty: 0.5,
                frequency_penalty: 0.5,
                seed: 11,
                rule,
                ..SamplerConfig::default()
            };
            let mut sampler = Sampler::new(config.clone()).unwrap();
            let step = |sampler: &mut Sampler| {
                let token = sampler.sample(&row()).unwrap();
                sampler.record(token);
                token
            };
            for _ in 0..10 {
                step(&mut sampler);
            }
            let mut restored = Sampler::new(config).unwrap();
            restored.restore(sampler.state());
            let ahead: Vec<u32> = (0..30).map(|_| step(&mut sampler)).collect();
            let again: Vec<u32> = (0..30).map(|_| step(&mut restored)).collect();
            assert_eq!(ahead, again);
        }
    }

    #[test]
    fn a_penalty_pushes_greedy_decoding_away_from_repetition() {
        let config = SamplerConfig { presence_penalty: 2.0, ..SamplerConfig::default() };
        let mut sampler = Sampler::new(config).unwrap();
        let row = [1.0, 0.5, 0.0];
        let mut tokens = Vec::new();
        for _ in 0..3 {
            let token = sampler.sample(&row).unwrap();
            sampler.record(token);
            tokens.push(token);
        }
        assert_eq!(tokens, [0, 1, 2]);
    }
}
