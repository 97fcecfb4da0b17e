//! The MTPLX rules: softmax over the whole vocabulary, then top-p, top-k and min-p together, one renormalisation.
//!
//! - A softmax in float64 over all logits divided by the temperature.
//! - top-p acts when 0 < top_p < 1 and is measured on that softmax: in descending order a token stays while the mass
//!   before it is below top_p.
//! - top-k acts when 0 < top_k < vocabulary.
//! - min-p, which MTPLX does not have, drops tokens whose probability is below `min_p` times the largest.
//! - A token stays if all three keep it. The most likely token always stays, so that the set is never empty. Equal
//!   logits at a cut: the lower id stays.
//!
//! One deviation: MTPLX overlooks a NaN when top-k acts without top-p; here a NaN is an error in every case.

use super::Work;
use super::candidates::{Candidate, descending, largest};
use super::exp_sum::exp_sum;
use super::scan::RowScan;
use crate::{SamplerConfig, SamplingError};

/// Temperatures below this act like it, which keeps (logit - max) / temperature free of 0 * infinity.
const MIN_TEMPERATURE: f64 = 1e-300;
/// How far from the cut a mass must be to be past it for certain, whatever the order of summation.
const MASS_NOISE: f64 = 1e-9;

/// Writes the distribution of a sampled (not greedy) row into `work.distribution`.
pub(super) fn shape(logits: &[f32], config: &SamplerConfig, work: &mut Work) -> Result<(), SamplingError> {
    let softmax =
        Softmax { max: work.scan.run(logits)?, temperature: config.temperature.max(MIN_TEMPERATURE) };
    let top_k = config.top_k as usize;
    let cuts_by_rank = 0 < top_k && top_k < logits.len();
    let cuts_by_mass = 0.0 < config.top_p && config.top_p < 1.0;
    let candidates = &mut work.candidates;
    if cuts_by_rank {
        largest(logits, &work.scan, top_k, candidates);
        softmax.weigh(candidates);
    }
    if cuts_by_mass {
        let total = exp_sum(logits, softmax.max, softmax.temperature);
        if !cuts_by_rank {
            softmax.gather_nucleus(logits, &work.scan, config.top_p * total, candidates);
        }
        cut_at_mass(candidates, config.top_p, total);
    }
    if !cuts_by_rank && !cuts_by_mass {
        softmax.gather(logits, &work.scan, config.min_p, candidates);
    } else if config.min_p > 0.0 {
        // The largest weight is 1, so that weights are probabilities relative to the largest.
        candidates.retain(|candidate| candidate.weight >= config.min_p);
    }
    candidates.sort_unstable_by_key(|candidate| candidate.id);
    let entries = candidates.iter().map(|candidate| (candidate.id, candidate.weight));
    work.distribution.refill(logits.len(), entries);
    Ok(())
}

struct Softmax {
    max: f32,
    temperature: f64,
}

impl Softmax {
    /// exp((logit - max) / temperature): 1 for the maximum, 0 for a mask.
    fn weight(&self, logit: f32) -> f64 {
        ((f64::from(logit) - f64::from(self.max)) / self.temperature).exp()
    }

    fn weigh(&self, candidates: &mut [Candidate]) {
        for candidate in candidates {
            candidate.weight = self.weight(candidate.logit);
        }
    }

    /// All tokens with a weight of at least `floor`, and above 0, in id order.
    fn gather(&self, logits: &[f32], scan: &RowScan, floor: f64, out: &mut Vec<Candidate>) {
        out.clear();
        scan.visit_at_least(logits, f32::MIN, |id, logit| {
            let weight = self.weight(logit);
            if weight >= floor && weight > 0.0 {
                out.push(Candidate { weight, ..Candidate::new(id, logit) });
            }
            true
        });
    }

    /// Enough of the most likely tokens, in descending order, to hold at least `mass` (out of the row's sum of weights).
    ///
    /// Tries tokens near the maximum first, since a nucleus is usually small and only what is gathered is sorted.
    fn gather_nucleus(&self, logits: &[f32], scan: &RowScan, mass: f64, out: &mut Vec<Candidate>) {
        for reach in [4.0, 8.0, 16.0, 32.0, f64::INFINITY] {
            out.clear();
            let floor = (f64::from(self.max) - reach * self.temperature).max(f64::from(f32::MIN)) as f32;
            let mut gathered = 0.0;
            scan.visit_at_least(logits, floor, |id, logit| {
                let weight = self.weight(logit);
                gathered += weight;
                out.push(Candidate { weight, ..Candidate::new(id, logit) });
                true
            });
            if gathered > mass * (1.0 + MASS_NOISE) {
                break;
            }
        }
        out.sort_unstable_by(descending);
    }
}

/// Keeps candidates (in descending order) while the mass before them is below `top_p`.
fn cut_at_mass(candidates: &mut Vec<Candidate>, top_p: f64, total: f64) {
    let mut before = 0.0;
    let kept = candidates.iter().position(|candidate| {
        let past = before >= top_p;
        before += candidate.weight / total;
        past
    });
    candidates.truncate(kept.unwrap_or(candidates.len()));
}

#[cfg(test)]
#[path = "mtplx_tests.rs"]
mod tests;
