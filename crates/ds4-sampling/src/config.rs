//! Sampling parameters as a request means them, and their check.

use crate::SamplingError;

/// Whose rules turn logits into a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SamplerRule {
    /// MTPLX (Qwen3.8 Flash Next): float64 softmax, top-p over the whole vocabulary, NumPy's PCG64.
    Mtplx,
    /// ds4 (DeepSeek V4 Flash, GLM 5.3 Flash): float32, top-p after top-k, xorshift64*.
    Ds4,
}

/// Parameters of one sampler. `Default` is greedy decoding under the MTPLX rules.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplerConfig {
    /// Divides the logits; 0 or less picks the first maximum.
    pub temperature: f64,
    /// Nucleus mass; 0 and 1 both mean "no filter", as in both references.
    pub top_p: f64,
    /// How many of the largest logits may be drawn; 0 means all.
    pub top_k: u32,
    /// Tokens less likely than this fraction of the most likely one are dropped; 0 means none.
    pub min_p: f64,
    /// Subtracted once from the logit of every generated token. Clamped to -2 to 2.
    pub presence_penalty: f64,
    /// Subtracted from the logit of a token as often as it was generated. Clamped to -2 to 2.
    pub frequency_penalty: f64,
    /// Added to the logits of single tokens. Negative infinity forbids a token.
    pub logit_bias: Vec<(u32, f64)>,
    /// Start of the random stream.
    pub seed: u64,
    /// Which reference's rules apply.
    pub rule: SamplerRule,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
            rule: SamplerRule::Mtplx,
        }
    }
}

impl SamplerConfig {
    /// Checks every parameter; an error names the first one out of range.
    pub fn validate(&self) -> Result<(), SamplingError> {
        check("temperature", self.temperature, 0.0..=f64::MAX, "a finite number of at least 0")?;
        check("top_p", self.top_p, 0.0..=1.0, "between 0 and 1")?;
        check("min_p", self.min_p, 0.0..=1.0, "between 0 and 1")?;
        check("presence_penalty", self.presence_penalty, f64::MIN..=f64::MAX, "finite")?;
        check("frequency_penalty", self.frequency_penalty, f64::MIN..=f64::MAX, "finite")?;
        for &(_, bias) in &self.logit_bias {
            check(
                "logit_bias",
                bias,
                f64::NEG_INFINITY..=f64::MAX,
                "finite, or -infinity to forbid a token",
            )?;
        }
        Ok(())
    }

    /// True if a penalty can change a logit, which rules out context copy for the request.
    pub fn has_penalties(&self) -> bool {
        self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// True if no random number is drawn.
    pub fn is_greedy(&self) -> bool {
        self.temperature <= 0.0
    }
}

fn check(
    name: &'static str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    expected: &'static str,
) -> Result<(), SamplingError> {
    if range.contains(&value) {
        Ok(())
    } else {
        Err(SamplingError::InvalidParameter { name, value, expected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_named_when_it_is_not_a_number() {
        let base = SamplerConfig::default();
        let cases: [(&str, SamplerConfig); 6] = [
            ("temperature", SamplerConfig { temperature: f64::NAN, ..base.clone() }),
            ("top_p", SamplerConfig { top_p: f64::NAN, ..base.clone() }),
            ("min_p", SamplerConfig { min_p: f64::NAN, ..base.clone() }),
            ("presence_penalty", SamplerConfig { presence_penalty: f64::INFINITY, ..base.clone() }),
            ("frequency_penalty", SamplerConfig { frequency_penalty: f64::NAN, ..base.clone() }),
            ("logit_bias", SamplerConfig { logit_bias: vec![(1, f64::NAN)], ..base.clone() }),
        ];
        for (expected, config) in cases {
            match config.validate() {
                Err(SamplingError::InvalidParameter { name, .. }) => assert_eq!(name, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
    }

    #[test]
    fn edges_of_the_ranges_are_valid() {
        let config = SamplerConfig {
            temperature: 1e-300,
            top_p: 0.0,
            min_p: 1.0,
            logit_bias: vec![(0, f64::NEG_INFINITY)],
            ..SamplerConfig::default()
        };
        assert_eq!(config.validate(), Ok(()));
        assert!(SamplerConfig { top_p: 1.5, ..config.clone() }.validate().is_err());
        assert!(SamplerConfig { temperature: -1.0, ..config }.validate().is_err());
    }
}
