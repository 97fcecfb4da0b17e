//! `POST /v1/sessions/{id}/compact`, the request. Not OpenAI's: it has the parameters of a chat request that concern the
//! conversation and the summary, and all of them may be left out.

use ds4_text::{ChatPrompt, GenerationDefaults};
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::fields::Fields;
use crate::wire::openai::parameters::Parameters;
use crate::wire::openai::{messages, thinking, tools};

/// A request for a shorter conversation, checked.
#[derive(Debug)]
pub(crate) struct CompactRequest {
    /// What was said, if the client says it.
    pub(crate) conversation: Option<ChatPrompt>,
    /// How the summary is made.
    pub(crate) parameters: Parameters,
    /// Most tokens of the summary.
    pub(crate) max_tokens: Option<usize>,
}

impl CompactRequest {
    /// Reads and checks a request.
    pub(crate) fn read(
        object: &Map<String, Value>,
        defaults: &GenerationDefaults,
        vocabulary: usize,
    ) -> Result<Self, ApiError> {
        let fields = Fields::root(object);
        let conversation = match fields.value("messages") {
            None => None,
            Some(_) => {
                let (thinking, template_kwargs) = thinking::read(&fields)?;
                let tools = tools::read(&fields)?;
                Some(ChatPrompt {
                    tools,
                    thinking,
                    template_kwargs,
                    ..ChatPrompt::new(messages::read(&fields)?)
                })
            }
        };
        Ok(Self {
            conversation,
            parameters: Parameters::read(&fields, defaults, vocabulary)?,
            max_tokens: fields.count("max_tokens", 1..=usize::MAX >> 1, "at least 1")?,
        })
    }
}
