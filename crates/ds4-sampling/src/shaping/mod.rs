//! From a row of logits to the distribution a token is drawn from, under either reference's rules.
//!
//! `scan` reads a row once (maximum, block maxima, faults), `candidates` finds the largest logits without sorting the
//! row, `exp_sum` is the softmax denominator, `mtplx` and `ds4` are the two rule sets.

mod candidates;
mod ds4;
mod exp_sum;
mod mtplx;
mod scan;

pub(crate) use candidates::largest;
pub(crate) use exp_sum::exp_sum;
pub(crate) use scan::RowScan;

use crate::penalties::adjust;
use crate::{RandomStream, SamplerConfig, SamplerRule, SamplingError, SparseDistribution, TokenCounts};
use candidates::Candidate;

/// Turns rows of logits into distributions for one set of parameters, reusing its memory.
///
/// It holds no random stream and no counts, so that target and draft of a speculative decoder can share theirs.
#[derive(Debug, Clone)]
pub struct Shaper {
    config: SamplerConfig,
    adjusted: Vec<f32>,
    work: Work,
}

/// Memory reused between rows.
#[derive(Debug, Clone)]
struct Work {
    scan: RowScan,
    candidates: Vec<Candidate>,
    distribution: SparseDistribution,
}

impl Shaper {
    /// Checks the parameters; an error names the invalid one.
    pub fn new(config: SamplerConfig) -> Result<Self, SamplingError> {
        config.validate()?;
        let work = Work {
            scan: RowScan::default(),
            candidates: Vec::new(),
            distribution: SparseDistribution::placeholder(),
        };
        Ok(Self { config, adjusted: Vec::new(), work })
    }

    /// The parameters.
    pub fn config(&self) -> &SamplerConfig {
        &self.config
    }

    /// The distribution of the next token after `counts` generated tokens, given its row of logits.
    ///
    /// Errors if the row is empty, holds NaN or +infinity, or is masked (-infinity) everywhere.
    pub fn shape(
        &mut self,
        logits: &[f32],
        counts: &TokenCounts,
    ) -> Result<&SparseDistribution, SamplingError> {
        let row = adjust(logits, &self.config, counts, &mut self.adjusted)?;
        if self.config.is_greedy() {
            let token = self.work.scan.argmax(row)?;
            self.work.distribution.refill(row.len(), std::iter::once((token, 1.0)));
        } else {
            match self.config.rule {
                SamplerRule::Mtplx => mtplx::shape(row, &self.config, &mut self.work)?,
                SamplerRule::Ds4 => ds4::shape(row, &self.config, &mut self.work)?,
            }
        }
        Ok(&self.work.distribution)
    }

    /// Draws a token: no random number if greedy, one otherwise. Errors as [`Self::shape`].
    pub fn draw(
        &mut self,
        logits: &[f32],
        counts: &TokenCounts,
        stream: &mut RandomStream,
    ) -> Result<u32, SamplingError> {
        if self.config.is_greedy() {
            return self.argmax(logits, counts);
        }
        match self.config.rule {
            SamplerRule::Mtplx => Ok(self.shape(logits, counts)?.draw(stream)),
            SamplerRule::Ds4 => {
                let row = adjust(logits, &self.config, counts, &mut self.adjusted)?;
                ds4::draw(row, &self.config, &mut self.work, stream)
            }
        }
    }

    /// The most likely token after penalties and bias; the lowest id of equals.
    pub fn argmax(&mut self, logits: &[f32], counts: &TokenCounts) -> Result<u32, SamplingError> {
        let row = adjust(logits, &self.config, counts, &mut self.adjusted)?;
        self.work.scan.argmax(row)
    }
}
