//! `POST /v1/chat/completions`, the request.
//!
//! Accepted and without effect: `user`, `metadata`, `store`, `service_tier`, `safety_identifier` and the
//! `prompt_cache_*` parameters, which ask for nothing that shows in an answer, and every unknown parameter.

use ds4_text::{GenerationDefaults, Message, Thinking};
use serde_json::{Map, Value};

use crate::error::{ApiError, ParameterError};
use crate::fields::Fields;
use crate::wire::openai::parameters::{MOST_LOGPROBS, Parameters};
use crate::wire::openai::{messages, thinking, tools, unsupported};

/// A chat request, checked.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub(crate) parameters: Parameters,
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Vec<Value>,
    pub(crate) thinking: Thinking,
    /// What the chat template gets besides.
    pub(crate) template_kwargs: Map<String, Value>,
    /// Most tokens to generate; `max_completion_tokens` goes before `max_tokens`.
    pub(crate) max_tokens: Option<usize>,
    /// Alternatives at each position, if log-probabilities are asked for.
    pub(crate) logprobs: Option<usize>,
}

impl ChatRequest {
    /// Reads and checks a request.
    pub(crate) fn read(
        object: &Map<String, Value>,
        defaults: &GenerationDefaults,
        vocabulary: usize,
    ) -> Result<Self, ApiError> {
        let fields = Fields::root(object);
        let messages = messages::read(&fields)?;
        unsupported::refuse(&fields, unsupported::CHAT)?;
        let (thinking, template_kwargs) = thinking::read(&fields)?;
        const POSITIVE: &str = "at least 1";
        let max_tokens = fields.count("max_tokens", 1..=usize::MAX >> 1, POSITIVE)?;
        let max_completion_tokens = fields.count("max_completion_tokens", 1..=usize::MAX >> 1, POSITIVE)?;
        Ok(Self {
            parameters: Parameters::read(&fields, defaults, vocabulary)?,
            messages,
            tools: tools::read(&fields)?,
            thinking,
            template_kwargs,
            max_tokens: max_completion_tokens.or(max_tokens),
            logprobs: logprobs(&fields)?,
        })
    }
}

fn logprobs(fields: &Fields<'_>) -> Result<Option<usize>, ParameterError> {
    let wanted = fields.boolean("logprobs")?.unwrap_or(false);
    let top = fields.count("top_logprobs", 0..=MOST_LOGPROBS, "between 0 and 20")?;
    match top {
        Some(1..) if !wanted => Err(fields.not_supported("top_logprobs", "it needs `logprobs`: true")),
        top => Ok(wanted.then(|| top.unwrap_or(0))),
    }
}
