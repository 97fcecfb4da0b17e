//! Why the engine refused or ended a request. Each variant carries the figures that a client needs to act on it.

/// An error of one request, or of the engine itself.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// There is nothing to continue.
    #[error("the prompt is empty: at least one token is needed")]
    EmptyPrompt,
    /// The prompt leaves no room for an answer.
    #[error(
        "this model's maximum context length is {context} tokens, and the prompt has {prompt_tokens}; shorten the prompt"
    )]
    ContextLengthExceeded {
        /// Tokens in the prompt.
        prompt_tokens: usize,
        /// Tokens that fit.
        context: usize,
    },
    /// A token id that the model does not have.
    #[error("token {token} is outside of the vocabulary of {vocabulary} tokens")]
    TokenOutOfRange {
        /// The id.
        token: u32,
        /// Ids are below this.
        vocabulary: usize,
    },
    /// Too many requests wait.
    #[error("{waiting} requests are waiting already; try again later")]
    QueueFull {
        /// Requests in the queue.
        waiting: usize,
    },
    /// The model computed a NaN or an infinity: the answer so far stands, nothing after it can be trusted.
    #[error("the model computed a {value} logit for token {token} at position {position}")]
    NonFiniteLogits {
        /// Position in the sequence, from 0.
        position: usize,
        /// Id of the first such logit.
        token: u32,
        /// NaN, inf or -inf.
        value: f32,
    },
    /// The forward pass failed.
    #[error("the model failed: {reason}")]
    Model {
        /// What the model reported.
        reason: String,
    },
    /// Work on the request panicked. The engine goes on with the next one.
    #[error("the engine panicked: {message}; this is a defect of the program")]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// A session could not be removed.
    #[error("the session {session} was not removed: {reason}")]
    SessionNotRemoved {
        /// Its name.
        session: String,
        /// What the store reported.
        reason: String,
    },
    /// The engine has stopped and takes no requests.
    #[error("the engine has stopped; start the program again")]
    Stopped,
}
