//! `POST /v1/completions`, the request. The prompt goes to the model as it is, without a chat template; special
//! tokens that it spells out are special.

use ds4_text::GenerationDefaults;
use serde_json::{Map, Value};

use crate::error::ParameterError;
use crate::fields::{Fields, as_integer, out_of_range, wrong_type};
use crate::wire::openai::parameters::{MOST_LOGPROBS, Parameters};
use crate::wire::openai::unsupported;

/// OpenAI's default for this route; chat has no such limit.
const DEFAULT_MAX_TOKENS: usize = 16;

/// What the model continues.
#[derive(Debug, PartialEq)]
pub(crate) enum Prompt {
    /// A text, to be encoded.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// A completion request, checked.
#[derive(Debug)]
pub(crate) struct CompletionRequest {
    pub(crate) parameters: Parameters,
    pub(crate) prompt: Prompt,
    /// Most tokens to generate.
    pub(crate) max_tokens: usize,
    /// Alternatives at each position, if log-probabilities are asked for.
    pub(crate) logprobs: Option<usize>,
}

impl CompletionRequest {
    /// Reads and checks a request.
    pub(crate) fn read(
        object: &Map<String, Value>,
        defaults: &GenerationDefaults,
        vocabulary: usize,
    ) -> Result<Self, ParameterError> {
        let fields = Fields::root(object);
        let prompt = prompt(&fields)?;
        unsupported::refuse(&fields, unsupported::COMPLETION)?;
        Ok(Self {
            parameters: Parameters::read(&fields, defaults, vocabulary)?,
            prompt,
            max_tokens: fields
                .count("max_tokens", 1..=usize::MAX >> 1, "at least 1")?
                .unwrap_or(DEFAULT_MAX_TOKENS),
            logprobs: fields.count("logprobs", 0..=MOST_LOGPROBS, "between 0 and 20")?,
        })
    }
}

fn prompt(fields: &Fields<'_>) -> Result<Prompt, ParameterError> {
    const EXPECTED: &str = "a string or an array of token ids";
    const ONE: &str = "one prompt per request: send them one by one";
    let prompt = match fields.value("prompt") {
        None => return Err(fields.missing("prompt", EXPECTED)),
        // An array of prompts may have one.
        Some(Value::Array(prompts))
            if matches!(prompts.first(), Some(Value::String(_) | Value::Array(_))) =>
        {
            match prompts.as_slice() {
                [one] => one,
                _ => return Err(fields.not_supported("prompt", ONE)),
            }
        }
        Some(prompt) => prompt,
    };
    let empty = || fields.out_of_range("prompt", "at least one token long");
    match prompt {
        Value::String(text) if text.is_empty() => Err(empty()),
        Value::String(text) => Ok(Prompt::Text(text.clone())),
        Value::Array(ids) if ids.is_empty() => Err(empty()),
        Value::Array(ids) => ids
            .iter()
            .enumerate()
            .map(|(index, id)| token_id(id, format!("prompt[{index}]")))
            .collect::<Result<_, _>>()
            .map(Prompt::Tokens),
        _ => Err(fields.wrong_type("prompt", EXPECTED)),
    }
}

fn token_id(value: &Value, name: String) -> Result<u32, ParameterError> {
    let number = as_integer(value).ok_or_else(|| wrong_type(name.clone(), "a token id", value))?;
    u32::try_from(number).map_err(|_| out_of_range(name, "a token id", value))
}
