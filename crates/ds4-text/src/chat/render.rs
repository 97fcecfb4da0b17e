//! Renders a conversation with the checkpoint's template and encodes it, so that markup comes from the template alone.

use minijinja::Value;
use serde_json::Value as Json;

use super::guard::{Guard, GuardedCharacters, UsedCharacters};
use super::history;
use super::message::{ChatPrompt, Message};
use super::template::ChatTemplate;
use super::thinking::Thinking;
use super::values::{json_value, message_value};
use crate::{TextError, Tokenizer};

/// Template variables that a request sets by other means.
const RESERVED: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

/// A prompt ready for the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedPrompt {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// The same as text. Markup that a client typed looks like real markup here; only the tokens tell.
    pub text: String,
    /// The prompt ends inside of a reasoning block: the answer begins with reasoning.
    pub in_reasoning: bool,
}

/// Tokens that templates may name, from `tokenizer_config.json`: (`bos_token`, text) and so on.
pub(crate) type SpecialTokens = Vec<(&'static str, String)>;

/// What rendering needs of a loaded checkpoint.
pub(crate) struct Renderer<'a> {
    pub(crate) template: &'a ChatTemplate,
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) guarded: &'a GuardedCharacters,
    pub(crate) special_tokens: &'a SpecialTokens,
    /// Ids of `<think>` and `</think>`, if the tokenizer has them.
    pub(crate) think: Option<(u32, u32)>,
}

impl Renderer<'_> {
    pub(crate) fn render(&self, prompt: &ChatPrompt) -> Result<RenderedPrompt, TextError> {
        let messages = history::prepare(&prompt.messages);
        let guard = Guard::new(self.guarded, &used_characters(&messages, prompt))?;
        let rendered = self.template.render(self.context(&messages, prompt, &guard)?)?;
        let tokens = self.tokenizer.encode_pieces(&rendered, |text| guard.restore(text))?;
        let in_reasoning = self.think.is_some_and(|(open, close)| {
            tokens.iter().rev().find(|&&id| id == open || id == close) == Some(&open)
        });
        Ok(RenderedPrompt { tokens, text: guard.restore(&rendered), in_reasoning })
    }

    fn context(&self, messages: &[Message], prompt: &ChatPrompt, guard: &Guard) -> Result<Value, TextError> {
        let mut variables: Vec<(String, Value)> = Vec::new();
        for (name, text) in self.special_tokens {
            variables.push((name.to_string(), Value::from(text.as_str())));
        }
        let mut thinking = prompt.thinking;
        for (name, value) in &prompt.template_kwargs {
            if RESERVED.contains(&name.as_str()) {
                return Err(TextError::ReservedTemplateArgument { name: name.clone() });
            }
            match (name.as_str(), value) {
                ("enable_thinking" | "reasoning_effort", _) if prompt.thinking != Thinking::Default => {}
                ("reasoning_effort", Json::Null) => {}
                ("reasoning_effort", Json::String(word)) => thinking = word.parse()?,
                ("reasoning_effort", other) => {
                    return Err(TextError::UnknownThinkingLevel { word: other.to_string() });
                }
                _ => variables.push((name.clone(), json_value(value, guard))),
            }
        }
        for (name, value) in thinking_variables(thinking) {
            // A client that gave both a level and `enable_thinking` said the latter on purpose.
            if variables.iter().all(|(existing, _)| existing != name) {
                variables.push((name.to_string(), value));
            }
        }
        variables.push(("messages".into(), messages.iter().map(|m| message_value(m, guard)).collect()));
        variables.push(("tools".into(), tools_value(&prompt.tools, guard)));
        variables.push(("documents".into(), Value::from(())));
        variables.push(("add_generation_prompt".into(), Value::from(prompt.add_generation_prompt)));
        Ok(Value::from_pairs(variables))
    }
}

/// No tools are `none`, as in transformers.
fn tools_value(tools: &[Json], guard: &Guard) -> Value {
    match tools {
        [] => Value::from(()),
        tools => tools.iter().map(|tool| json_value(tool, guard)).collect(),
    }
}

fn thinking_variables(thinking: Thinking) -> Vec<(&'static str, Value)> {
    match thinking {
        Thinking::Default => Vec::new(),
        Thinking::Off => vec![("enable_thinking", Value::from(false))],
        Thinking::On => vec![("enable_thinking", Value::from(true))],
        Thinking::Level(level) => {
            vec![("enable_thinking", Value::from(true)), ("reasoning_effort", Value::from(level.as_str()))]
        }
    }
}

fn used_characters(messages: &[Message], prompt: &ChatPrompt) -> UsedCharacters {
    let mut used = UsedCharacters::default();
    for message in messages {
        used.note(&message.content);
        for text in [&message.reasoning_content, &message.tool_call_id, &message.name].into_iter().flatten() {
            used.note(text);
        }
        for call in &message.tool_calls {
            used.note(&call.id);
            used.note(&call.name);
            // A string of JSON may spell characters as escapes, so the parsed form counts.
            for (key, value) in history::arguments_object(&call.arguments).iter() {
                used.note(key);
                used.note_json(value);
            }
        }
    }
    prompt.tools.iter().for_each(|tool| used.note_json(tool));
    for (name, value) in &prompt.template_kwargs {
        used.note(name);
        used.note_json(value);
    }
    used
}
