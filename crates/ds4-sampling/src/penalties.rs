//! Presence and frequency penalties and logit bias, applied to raw logits before the temperature.
//!
//! Formula: logit -= frequency * count + presence * (count > 0), with both penalties clamped to -2 to 2 and counts
//! over generated tokens only. The arithmetic is float32 like in MTPLX's serving path. Left out: loop steering.

use std::collections::HashMap;

use crate::{SamplerConfig, SamplingError};

const LIMIT: f64 = 2.0;

/// How often each token was generated in the current answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenCounts {
    counts: HashMap<u32, u32>,
}

impl TokenCounts {
    /// Counts one more occurrence of `token`.
    pub fn record(&mut self, token: u32) {
        *self.counts.entry(token).or_default() += 1;
    }

    /// Occurrences of `token` so far.
    pub fn count(&self, token: u32) -> u32 {
        self.counts.get(&token).copied().unwrap_or_default()
    }

    /// Token and count pairs in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.counts.iter().map(|(&token, &count)| (token, count))
    }
}

impl FromIterator<(u32, u32)> for TokenCounts {
    fn from_iter<I: IntoIterator<Item = (u32, u32)>>(pairs: I) -> Self {
        Self { counts: pairs.into_iter().collect() }
    }
}

/// Writes the adjusted row into `adjusted` and returns it, or returns `logits` untouched if nothing applies.
pub(crate) fn adjust<'a>(
    logits: &'a [f32],
    config: &SamplerConfig,
    counts: &TokenCounts,
    adjusted: &'a mut Vec<f32>,
) -> Result<&'a [f32], SamplingError> {
    let penalised = config.has_penalties() && !counts.counts.is_empty();
    if !penalised && config.logit_bias.is_empty() {
        return Ok(logits);
    }
    adjusted.clear();
    adjusted.extend_from_slice(logits);
    let mut add = |token: u32, delta: f64| match adjusted.get_mut(token as usize) {
        Some(logit) => {
            *logit += delta as f32;
            Ok(())
        }
        None => Err(SamplingError::TokenOutOfRange { token, vocabulary: logits.len() }),
    };
    if penalised {
        let presence = config.presence_penalty.clamp(-LIMIT, LIMIT);
        let frequency = config.frequency_penalty.clamp(-LIMIT, LIMIT);
        for (token, count) in counts.iter() {
            add(token, -(frequency * f64::from(count) + presence))?;
        }
    }
    for &(token, bias) in &config.logit_bias {
        add(token, bias)?;
    }
    Ok(adjusted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adjusted(config: &SamplerConfig, counts: &[(u32, u32)]) -> Vec<f32> {
        let counts = counts.iter().copied().collect();
        adjust(&[1.0, 2.0, 3.0], config, &counts, &mut Vec::new()).unwrap().to_vec()
    }

    #[test]
    fn frequency_scales_with_the_count_and_presence_does_not() {
        let config =
            SamplerConfig { presence_penalty: 0.5, frequency_penalty: 0.25, ..SamplerConfig::default() };
        assert_eq!(adjusted(&config, &[(0, 1), (2, 4)]), [0.25, 2.0, 1.5]);
    }

    #[test]
    fn penalties_are_clamped() {
        let config = SamplerConfig { presence_penalty: 5.0, ..SamplerConfig::default() };
        assert_eq!(adjusted(&config, &[(1, 1)]), [1.0, 0.0, 3.0]);
    }

    #[test]
    fn a_bias_of_negative_infinity_forbids_a_token() {
        let config =
            SamplerConfig { logit_bias: vec![(1, f64::NEG_INFINITY), (0, 1.5)], ..SamplerConfig::default() };
        assert_eq!(adjusted(&config, &[]), [2.5, f32::NEG_INFINITY, 3.0]);
    }

    #[test]
    fn a_biased_token_outside_the_vocabulary_is_named() {
        let config = SamplerConfig { logit_bias: vec![(9, 1.0)], ..SamplerConfig::default() };
        let result = adjust(&[0.0], &config, &TokenCounts::default(), &mut Vec::new()).map(<[f32]>::to_vec);
        assert_eq!(result, Err(SamplingError::TokenOutOfRange { token: 9, vocabulary: 1 }));
    }
}
