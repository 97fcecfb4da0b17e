//! How sure a draft head is of its token, from its raw logits.

use crate::SamplingError;
use crate::shaping::{RowScan, largest};

/// The softmax is taken over this many largest logits.
const TOP: usize = 8;

/// Confidence of one draft row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence {
    /// Distance of the two largest logits.
    pub top2_margin: f64,
    /// Probability of the largest among the eight largest.
    pub top1_probability: f64,
}

impl Confidence {
    /// Reads the confidence from a row of logits.
    pub fn of(logits: &[f32]) -> Result<Self, SamplingError> {
        let mut scan = RowScan::default();
        scan.run(logits)?;
        let mut top = Vec::new();
        largest(logits, &scan, TOP, &mut top);
        let [first, second, ..] = top[..] else {
            return Ok(Self { top2_margin: 0.0, top1_probability: 1.0 });
        };
        let distance = |logit: f32| f64::from(logit) - f64::from(first.logit);
        let sum: f64 = top.iter().map(|candidate| distance(candidate.logit).exp()).sum();
        Ok(Self { top2_margin: f64::from(first.logit - second.logit), top1_probability: 1.0 / sum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margin_and_probability_of_small_rows() {
        let confidence = Confidence::of(&[1.0, 3.0, 1.0 - 100.0]).unwrap();
        assert_eq!(confidence.top2_margin, 2.0);
        assert!((confidence.top1_probability - 1.0 / (1.0 + (-2f64).exp())).abs() < 1e-12);
        assert_eq!(Confidence::of(&[5.0]).unwrap(), Confidence { top2_margin: 0.0, top1_probability: 1.0 });
    }
}
