//! Log-probabilities for the `logprobs` and `top_logprobs` fields of an answer.

use crate::SamplingError;
use crate::shaping::{RowScan, exp_sum, largest};

/// The natural log-probability of `chosen` and the `n` most likely tokens with theirs, most likely first.
///
/// Both come from the raw logits (temperature 1, no filter, no penalty), through a float64 log-sum-exp. Equal logits are
/// listed by ascending id. A masked token has log-probability -infinity.
pub fn logprobs(logits: &[f32], chosen: u32, n: usize) -> Result<(f32, Vec<(u32, f32)>), SamplingError> {
    let Some(&chosen_logit) = logits.get(chosen as usize) else {
        return Err(SamplingError::TokenOutOfRange { token: chosen, vocabulary: logits.len() });
    };
    let mut scan = RowScan::default();
    let max = scan.run(logits)?;
    let log_total = f64::from(max) + exp_sum(logits, max, 1.0).ln();
    let log_probability = |logit: f32| (f64::from(logit) - log_total) as f32;
    let mut top = Vec::new();
    largest(logits, &scan, n, &mut top);
    Ok((
        log_probability(chosen_logit),
        top.iter().map(|candidate| (candidate.id, log_probability(candidate.logit))).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_a_small_row() {
        let row = [2f32.ln(), 0.0, 5f32.ln(), f32::NEG_INFINITY];
        let (chosen, top) = logprobs(&row, 0, 3).unwrap();
        assert!((chosen - 0.25f32.ln()).abs() < 1e-6);
        assert_eq!(top.iter().map(|pair| pair.0).collect::<Vec<_>>(), [2, 0, 1]);
        assert!((top[0].1 - 0.625f32.ln()).abs() < 1e-6);
        assert_eq!(logprobs(&row, 3, 0).unwrap(), (f32::NEG_INFINITY, vec![]));
    }

    #[test]
    fn equal_logits_are_listed_by_id_and_n_may_exceed_the_vocabulary() {
        let (_, top) = logprobs(&[0.0, -0.0, 0.0], 1, 20).unwrap();
        assert_eq!(top.iter().map(|pair| pair.0).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn a_token_outside_the_row_is_an_error() {
        assert!(logprobs(&[0.0], 1, 0).is_err());
    }
}
