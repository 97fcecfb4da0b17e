//! What can be wrong with sampling parameters, a row of logits, or a distribution.

/// An error of this crate. Each variant names the value at fault.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// A parameter is NaN, infinite or outside its range.
    #[error("sampling parameter `{name}` is {value}; it must be {expected}")]
    InvalidParameter {
        /// The parameter as a request spells it.
        name: &'static str,
        /// The value given.
        value: f64,
        /// The accepted range in words.
        expected: &'static str,
    },
    /// A logit is NaN or +infinity. (-infinity is a mask and allowed.)
    #[error(
        "the model produced the logit {value} for token {token}; the answer cannot continue (a fault in the weights or a kernel)"
    )]
    NonFiniteLogit {
        /// The first token with such a logit.
        token: u32,
        /// Its logit.
        value: f32,
    },
    /// Every logit of the row is -infinity, so no token can be drawn.
    #[error("all {vocabulary} logits of the row are masked; no token can be drawn")]
    AllTokensMasked {
        /// Length of the row.
        vocabulary: usize,
    },
    /// A row without any logit.
    #[error("the row of logits is empty; the vocabulary must have at least one token")]
    EmptyRow,
    /// A token id that the row does not have.
    #[error("token {token} is outside the vocabulary of {vocabulary} tokens")]
    TokenOutOfRange {
        /// The id.
        token: u32,
        /// Length of the row.
        vocabulary: usize,
    },
    /// Parts that do not form a distribution.
    #[error(
        "{entries} entries do not form a distribution: ids must ascend below {vocabulary} and probabilities must be finite, not negative and not all zero"
    )]
    InvalidDistribution {
        /// Number of entries given.
        entries: usize,
        /// Vocabulary size given.
        vocabulary: usize,
    },
    /// A step of the speculative decoder at the wrong time.
    #[error("the decoder's step `{step}` was called out of order; call {expected} first")]
    StepOutOfOrder {
        /// The step called.
        step: &'static str,
        /// The step or steps to call instead.
        expected: &'static str,
    },
}
