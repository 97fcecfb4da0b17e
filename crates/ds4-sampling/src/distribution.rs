//! A distribution over few tokens of a large vocabulary, and NumPy's way to draw from it.

use crate::{RandomStream, SamplingError};

/// Probabilities of the tokens that can be drawn; every other token has probability 0.
///
/// Ids ascend, probabilities are positive and sum to 1 (up to rounding). There is always at least one entry.
#[derive(Debug, Clone, PartialEq)]
pub struct SparseDistribution {
    ids: Vec<u32>,
    probs: Vec<f64>,
    vocabulary: usize,
}

impl SparseDistribution {
    /// Normalises `probs` (one per entry of `ids`) and drops the zeros.
    ///
    /// Errors unless ids ascend strictly below `vocabulary` and the weights are finite, not negative and not all zero.
    pub fn new(ids: Vec<u32>, probs: Vec<f64>, vocabulary: usize) -> Result<Self, SamplingError> {
        let invalid = SamplingError::InvalidDistribution { entries: ids.len(), vocabulary };
        let ascending = ids.windows(2).all(|pair| pair[0] < pair[1]);
        let in_range = ids.last().is_some_and(|&last| (last as usize) < vocabulary);
        let valid_weights = probs.iter().all(|p| p.is_finite() && *p >= 0.0);
        let mass: f64 = probs.iter().sum();
        if ids.len() != probs.len()
            || !ascending
            || !in_range
            || !valid_weights
            || mass <= 0.0
            || !mass.is_finite()
        {
            return Err(invalid);
        }
        let mut distribution = Self { ids, probs, vocabulary };
        distribution.drop_zeros_and_divide_by(mass);
        Ok(distribution)
    }

    /// All mass on one token.
    pub fn one_hot(token: u32, vocabulary: usize) -> Self {
        Self { ids: vec![token], probs: vec![1.0], vocabulary }
    }

    /// Token ids in ascending order.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Probabilities in the order of [`Self::ids`].
    pub fn probs(&self) -> &[f64] {
        &self.probs
    }

    /// Number of tokens in the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Probability of one token.
    pub fn probability(&self, token: u32) -> f64 {
        self.ids.binary_search(&token).map_or(0.0, |at| self.probs[at])
    }

    /// Draws a token with exactly one uniform: the first whose cumulative probability exceeds it, as NumPy's
    /// `choice(ids, p=probs)` does (running sum, divided by its last value, searched to the right).
    pub fn draw(&self, stream: &mut RandomStream) -> u32 {
        let uniform = stream.uniform();
        let total: f64 = self.probs.iter().sum();
        let mut sum = 0.0;
        for (&id, &p) in self.ids.iter().zip(&self.probs) {
            sum += p;
            if sum / total > uniform {
                return id;
            }
        }
        self.ids.last().copied().unwrap_or_default()
    }

    /// An allocation to be filled by [`Self::refill`].
    pub(crate) fn placeholder() -> Self {
        Self::one_hot(0, 1)
    }

    /// Replaces the content, keeping the allocation. The entries must obey the type's invariants but for the sum.
    pub(crate) fn refill(&mut self, vocabulary: usize, entries: impl Iterator<Item = (u32, f64)>) {
        self.ids.clear();
        self.probs.clear();
        self.vocabulary = vocabulary;
        for (id, weight) in entries {
            self.ids.push(id);
            self.probs.push(weight);
        }
        debug_assert!(self.ids.windows(2).all(|pair| pair[0] < pair[1]));
        let mass = self.probs.iter().sum();
        self.drop_zeros_and_divide_by(mass);
    }

    fn drop_zeros_and_divide_by(&mut self, mass: f64) {
        let mut kept = 0;
        for at in 0..self.ids.len() {
            let probability = self.probs[at] / mass;
            if probability > 0.0 {
                self.ids[kept] = self.ids[at];
                self.probs[kept] = probability;
                kept += 1;
            }
        }
        self.ids.truncate(kept);
        self.probs.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SamplerRule;

    #[test]
    fn new_normalises_and_drops_zeros() {
        let distribution = SparseDistribution::new(vec![2, 5, 9], vec![3.0, 0.0, 1.0], 10).unwrap();
        assert_eq!(distribution.ids(), [2, 9]);
        assert_eq!(distribution.probs(), [0.75, 0.25]);
        assert_eq!(distribution.probability(9), 0.25);
        assert_eq!(distribution.probability(5), 0.0);
    }

    #[test]
    fn parts_that_form_no_distribution_are_refused() {
        for (ids, probs) in [
            (vec![], vec![]),
            (vec![1, 1], vec![0.5, 0.5]),
            (vec![1], vec![0.0]),
            (vec![1], vec![f64::NAN]),
            (vec![1, 2], vec![1.5, -0.5]),
            (vec![1, 10], vec![0.5, 0.5]),
            (vec![1], vec![0.5, 0.5]),
        ] {
            assert!(SparseDistribution::new(ids.clone(), probs.clone(), 10).is_err(), "{ids:?} {probs:?}");
        }
    }

    #[test]
    fn a_draw_takes_exactly_one_uniform_even_from_a_single_token() {
        let mut stream = RandomStream::for_rule(SamplerRule::Mtplx, 0);
        let mut expected = stream.clone();
        expected.uniform();
        assert_eq!(SparseDistribution::one_hot(7, 10).draw(&mut stream), 7);
        assert_eq!(stream, expected);
    }
}
