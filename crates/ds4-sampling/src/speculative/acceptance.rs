//! Accept or reject drafted tokens so that the output keeps the target's distribution.
//!
//! A draft from q is accepted with probability min(1, p/q); a rejection is replaced by a draw from max(p - q, 0),
//! normalised (Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023). Random numbers are
//! drawn in this order: one uniform for each examined draft, then one for the correction. A bonus token after a fully
//! accepted window is the caller's draw.

use crate::{RandomStream, SamplingError, SparseDistribution};

/// What a draft was drawn from.
#[derive(Debug, Clone, PartialEq)]
pub enum Proposal {
    /// A token that was not drawn: copied from the prompt, or a greedy draft. Counts as probability 1.
    Point,
    /// The draft head's distribution.
    Drawn(SparseDistribution),
}

/// A drafted token with its proposal.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// The token.
    pub token: u32,
    /// Where it came from.
    pub proposal: Proposal,
}

/// Target distributions of a window, asked for in order and only up to the first rejection.
pub trait TargetRows {
    /// The target's distribution of the token at `row`, given that all drafts before it were accepted.
    fn distribution(&mut self, row: usize) -> Result<&SparseDistribution, SamplingError>;

    /// Called for each accepted draft, before the next row is asked for.
    fn accepted(&mut self, _token: u32) {}
}

/// The outcome for a window of drafts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WindowVerdict {
    /// How many drafts were accepted.
    pub accepted: usize,
    /// The token drawn in place of the first rejected draft.
    pub correction: Option<u32>,
    /// Acceptance probability of each examined draft.
    pub probabilities: Vec<f64>,
}

/// min(1, p/q) of `token`; if q is 0, 1 for a token the target can draw and 0 otherwise.
pub fn acceptance_probability(target: &SparseDistribution, draft: &SparseDistribution, token: u32) -> f64 {
    let (p, q) = (target.probability(token), draft.probability(token));
    if q > 0.0 {
        (p / q).min(1.0)
    } else if p > 0.0 {
        1.0
    } else {
        0.0
    }
}

/// max(p - q, 0) normalised, or p if that is empty.
pub fn residual(target: &SparseDistribution, draft: &SparseDistribution) -> SparseDistribution {
    let (ids, weights) = target
        .ids()
        .iter()
        .zip(target.probs())
        .map(|(&id, &p)| (id, (p - draft.probability(id)).max(0.0)))
        .unzip();
    // The only way to fail is that no weight is left.
    SparseDistribution::new(ids, weights, target.vocabulary()).unwrap_or_else(|_| target.clone())
}

/// Examines `drafts` in order until one is rejected or `ends_after(token)` holds for an accepted one.
pub fn verify_drafts(
    drafts: &[Draft],
    rows: &mut impl TargetRows,
    stream: &mut RandomStream,
    ends_after: impl Fn(u32) -> bool,
) -> Result<WindowVerdict, SamplingError> {
    let mut verdict = WindowVerdict::default();
    for (row, draft) in drafts.iter().enumerate() {
        let target = rows.distribution(row)?;
        let probability = match &draft.proposal {
            Proposal::Point => target.probability(draft.token),
            Proposal::Drawn(proposal) => acceptance_probability(target, proposal, draft.token),
        };
        verdict.probabilities.push(probability);
        if stream.uniform() > probability {
            let remaining = match &draft.proposal {
                Proposal::Point => {
                    residual(target, &SparseDistribution::one_hot(draft.token, target.vocabulary()))
                }
                Proposal::Drawn(proposal) => residual(target, proposal),
            };
            verdict.correction = Some(remaining.draw(stream));
            break;
        }
        verdict.accepted += 1;
        rows.accepted(draft.token);
        if ends_after(draft.token) {
            break;
        }
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SamplerRule;
    use proptest::prelude::*;

    struct Fixed(Vec<SparseDistribution>, usize);

    impl TargetRows for Fixed {
        fn distribution(&mut self, row: usize) -> Result<&SparseDistribution, SamplingError> {
            self.1 += 1;
            Ok(&self.0[row])
        }
    }

    fn weights() -> impl Strategy<Value = SparseDistribution> {
        prop::collection::vec(prop_oneof![Just(0.0), 0.0f64..1.0], 6)
            .prop_filter_map("some mass", |w| SparseDistribution::new((0..6).collect(), w, 6).ok())
    }

    proptest! {
        /// Summed over all drafts, acceptance plus correction gives back the target.
        #[test]
        fn the_marginal_is_the_target(p in weights(), q in weights()) {
            for token in 0..6 {
                let mut marginal = q.probability(token) * acceptance_probability(&p, &q, token);
                for draft in 0..6 {
                    let rejected = 1.0 - acceptance_probability(&p, &q, draft);
                    marginal += q.probability(draft) * rejected * residual(&p, &q).probability(token);
                }
                prop_assert!((marginal - p.probability(token)).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn rows_after_a_rejection_are_never_asked_for() {
        let certain = |token| SparseDistribution::one_hot(token, 6);
        let mut rows = Fixed(vec![certain(1), certain(2), certain(3)], 0);
        let drafts = [1, 5, 3].map(|token| Draft { token, proposal: Proposal::Point });
        let mut stream = RandomStream::for_rule(SamplerRule::Mtplx, 0);
        let verdict = verify_drafts(&drafts, &mut rows, &mut stream, |_| false).unwrap();
        assert_eq!((verdict.accepted, verdict.correction), (1, Some(2)));
        assert_eq!(rows.1, 2);

        // Two uniforms for two examined drafts, one for the correction.
        let mut expected = RandomStream::for_rule(SamplerRule::Mtplx, 0);
        for _ in 0..3 {
            expected.uniform();
        }
        assert_eq!(stream, expected);
    }

    #[test]
    fn an_accepted_stop_token_ends_the_window() {
        let mut rows = Fixed(vec![SparseDistribution::one_hot(1, 6); 3], 0);
        let drafts = [1, 1, 1].map(|token| Draft { token, proposal: Proposal::Point });
        let mut stream = RandomStream::for_rule(SamplerRule::Mtplx, 0);
        let verdict = verify_drafts(&drafts, &mut rows, &mut stream, |token| token == 1).unwrap();
        assert_eq!((verdict.accepted, verdict.correction), (1, None));
    }
}
