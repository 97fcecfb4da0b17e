//! The ds4 rules: float32 throughout, top-k first, then min-p and top-p measured inside what top-k left.
//!
//! - Repair: top_p 0 means 1, top_k 0 means the whole vocabulary, top_k above 1024 means 1024.
//! - Whole vocabulary without top-p: no order is needed. Weights below min_p (the largest weight is 1) are dropped.
//! - Otherwise candidates in descending order of logit: the first always stays, the list ends before the first
//!   probability below min_p times the largest and after the token that reaches top_p. The kept weights are not
//!   normalised again.
//! - A draw subtracts weights from u times the kept sum, in the order of the list, until nothing is left; rounding may
//!   leave a rest, then the fallback is drawn (the last kept token; the maximum if there was no order).
//!
//! Two deviations. Equal logits have the order "lower id first" everywhere; in the C source the whole-vocabulary sort
//! leaves it open. NaN and +infinity are errors; the C source skips them.

use super::Work;
use super::candidates::{Candidate, largest};
use crate::{RandomStream, SamplerConfig, SamplingError};

const MAX_TOP_K: usize = 1024;
/// How many candidates are tried, in turn, for top-p over the whole vocabulary. 512 is the bound of newer ds4 versions; a
/// flat row needs more, and the last resort is to sort everything. The result does not depend on these numbers.
const BOUNDS: [usize; 3] = [512, 8192, usize::MAX];

/// What a draw needs besides the candidates in `Work`.
struct Kept {
    sum: f32,
    fallback: u32,
}

/// Draws a token of a sampled (not greedy) row with one uniform.
pub(super) fn draw(
    logits: &[f32],
    config: &SamplerConfig,
    work: &mut Work,
    stream: &mut RandomStream,
) -> Result<u32, SamplingError> {
    let kept = keep(logits, config, work, &BOUNDS)?;
    let mut rest = stream.uniform() as f32 * kept.sum;
    for candidate in &work.candidates {
        rest -= candidate.weight as f32;
        if rest <= 0.0 {
            return Ok(candidate.id);
        }
    }
    Ok(kept.fallback)
}

/// Writes the distribution [`draw`] draws from into `work.distribution`.
pub(super) fn shape(logits: &[f32], config: &SamplerConfig, work: &mut Work) -> Result<(), SamplingError> {
    keep(logits, config, work, &BOUNDS)?;
    work.candidates.sort_unstable_by_key(|candidate| candidate.id);
    let entries = work.candidates.iter().map(|candidate| (candidate.id, candidate.weight));
    work.distribution.refill(logits.len(), entries);
    Ok(())
}

/// Leaves the candidates that may be drawn in `work.candidates`, in the order of the walk.
fn keep(
    logits: &[f32],
    config: &SamplerConfig,
    work: &mut Work,
    bounds: &[usize],
) -> Result<Kept, SamplingError> {
    let max = work.scan.run(logits)?;
    let exp = Weight { max, temperature: config.temperature as f32 };
    let top_p = if config.top_p > 0.0 { config.top_p as f32 } else { 1.0 };
    let min_p = config.min_p as f32;
    let top_k = (config.top_k as usize).min(MAX_TOP_K);
    let out = &mut work.candidates;

    if top_k > 0 {
        largest(logits, &work.scan, top_k, out);
        exp.weigh(out);
        let sum = weight_sum(out);
        return Ok(cut(out, sum, top_p, min_p).unwrap_or_else(|| Kept { sum, fallback: last_id(out) }));
    }
    let mut sum = 0.0;
    if top_p >= 1.0 {
        out.clear();
        work.scan.visit_at_least(logits, f32::MIN, |id, logit| {
            let weight = exp.of(logit);
            if weight >= min_p {
                sum += weight;
                out.push(Candidate { weight: f64::from(weight), ..Candidate::new(id, logit) });
            }
            true
        });
        return Ok(Kept { sum, fallback: work.scan.argmax(logits)? });
    }
    work.scan.visit_at_least(logits, f32::MIN, |_, logit| {
        sum += exp.of(logit);
        true
    });
    for &bound in bounds {
        largest(logits, &work.scan, bound, out);
        exp.weigh(out);
        if let Some(kept) = cut(out, sum, top_p, min_p) {
            return Ok(kept);
        }
        if bound >= logits.len() {
            break;
        }
    }
    // Rounding kept the sum of all weights below top_p.
    Ok(Kept { sum: weight_sum(out), fallback: last_id(out) })
}

struct Weight {
    max: f32,
    temperature: f32,
}

impl Weight {
    fn of(&self, logit: f32) -> f32 {
        let distance = logit - self.max;
        // A temperature below float32's range is 0 here, and 0 / 0 for the maximum itself must stay a weight of 1.
        if distance == 0.0 { 1.0 } else { (distance / self.temperature).exp() }
    }

    fn weigh(&self, candidates: &mut [Candidate]) {
        for candidate in candidates {
            candidate.weight = f64::from(self.of(candidate.logit));
        }
    }
}

/// Cuts the descending list; `None` if neither min-p nor top-p ended it.
fn cut(out: &mut Vec<Candidate>, sum: f32, top_p: f32, min_p: f32) -> Option<Kept> {
    let smallest = out.first()?.weight as f32 / sum * min_p;
    let mut kept_sum = 0.0f32;
    for index in 0..out.len() {
        let weight = out[index].weight as f32;
        let end = if index > 0 && weight / sum < smallest {
            index
        } else {
            kept_sum += weight;
            if kept_sum / sum < top_p {
                continue;
            }
            index + 1
        };
        out.truncate(end);
        return Some(Kept { sum: kept_sum, fallback: last_id(out) });
    }
    None
}

/// In the order of the list, as the sums that it is compared with.
fn weight_sum(out: &[Candidate]) -> f32 {
    out.iter().map(|candidate| candidate.weight as f32).sum()
}

fn last_id(out: &[Candidate]) -> u32 {
    out.last().map_or(0, |candidate| candidate.id)
}

#[cfg(test)]
#[path = "ds4_tests.rs"]
mod tests;
