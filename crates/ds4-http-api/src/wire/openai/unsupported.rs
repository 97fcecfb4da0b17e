//! Parameters that are known, from OpenAI's API or from servers that follow it, and not implemented. A request that asks
//! for what they mean is refused: to drop them would change the answer in silence.

use serde_json::Value;

use crate::error::ParameterError;
use crate::fields::Fields;

/// A parameter that is not implemented.
pub(crate) struct Unsupported {
    name: &'static str,
    /// Whether a value asks for nothing that is not done anyway. `null` never does.
    harmless: fn(&Value) -> bool,
    /// What to send instead.
    advice: &'static str,
}

const TEXT_ONLY: &str = "answers are text: send {\"type\": \"text\"} or leave it out";
const LEAVE_OUT: &str = "leave it out";
const ONE: &str = "send 1 or leave it out";
const ZERO: &str = "send 0 or leave it out";
const FREE: &str = "answers are not constrained: leave it out";

/// Of chat completions.
pub(crate) const CHAT: &[Unsupported] = &[
    new("modalities", is_text_modality, "answers are text: send [\"text\"] or leave it out"),
    new("verbosity", |value| value == "medium", "send `medium` or leave it out"),
    new("functions", is_empty, "send `tools`"),
    new("function_call", never, "send `tool_choice`"),
    new("audio", never, "answers are text: leave it out"),
    new("prediction", never, LEAVE_OUT),
    new("web_search_options", never, LEAVE_OUT),
    new("moderation", never, LEAVE_OUT),
    new("add_generation_prompt", |value| value == true, "an answer is a new message: leave it out"),
    new("continue_final_message", |value| value == false, "an answer is a new message: leave it out"),
    new("chat_template", never, "the model's template is used: leave it out"),
    new("documents", is_empty, "put their text into a message"),
];

/// Of completions.
pub(crate) const COMPLETION: &[Unsupported] =
    &[new("suffix", |value| value == "", "the model does not fill in the middle: leave it out")];

/// Of both.
pub(crate) const BOTH: &[Unsupported] = &[
    new("response_format", is_text_format, TEXT_ONLY),
    new("echo", |value| value == false, "the answer does not repeat the prompt: send false"),
    new("best_of", is_one, "only one answer is made: send 1 or leave it out"),
    new("repetition_penalty", is_one, "send `frequency_penalty` or `presence_penalty`"),
    new("length_penalty", is_one, ONE),
    new("typical_p", is_one, ONE),
    new("min_tokens", is_zero, ZERO),
    new("mirostat", is_zero, ZERO),
    new("dry_multiplier", is_zero, ZERO),
    new("xtc_probability", is_zero, ZERO),
    new("use_beam_search", |value| value == false, "tokens are drawn one by one: send false"),
    new("ignore_eos", |value| value == false, "an answer ends where the model ends it: send false"),
    new("stop_token_ids", is_empty, "send `stop`"),
    new("bad_words", is_empty, "send `logit_bias`"),
    new("guided_json", never, FREE),
    new("guided_regex", never, FREE),
    new("guided_choice", never, FREE),
    new("guided_grammar", never, FREE),
    new("structured_outputs", never, FREE),
    new("json_schema", never, FREE),
    new("grammar", |value| value == "", FREE),
];

/// Refuses requests that ask for something of a list.
pub(crate) fn refuse(fields: &Fields<'_>, unsupported: &[Unsupported]) -> Result<(), ParameterError> {
    for parameter in unsupported {
        if fields.value(parameter.name).is_some_and(|value| !(parameter.harmless)(value)) {
            return Err(fields.not_supported(parameter.name, parameter.advice));
        }
    }
    Ok(())
}

const fn new(name: &'static str, harmless: fn(&Value) -> bool, advice: &'static str) -> Unsupported {
    Unsupported { name, harmless, advice }
}

fn never(_: &Value) -> bool {
    false
}

fn is_one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

fn is_text_format(value: &Value) -> bool {
    value.get("type").is_some_and(|kind| kind == "text")
}

fn is_text_modality(value: &Value) -> bool {
    value.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind == "text"))
}
