//! Renders a conversation with the checkpoint's template, or the family's if it brings none, and encodes it, so that markup
//! comes from the template alone.

use minijinja::Value;
use serde_json::Value as Json;

use super::builtin::Conversation;
use super::family::ChatFamily;
use super::guard::{Guard, GuardedCharacters, UsedCharacters};
use super::history;
use super::message::{ChatPrompt, Message};
use super::template::ChatTemplate;
use super::thinking::{Thinking, ThinkingLevel};
use super::values::{json_value, message_value};
use crate::prompt_limit::PromptLimit;
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

/// What turns a conversation into text.
pub(crate) enum Template {
    /// The checkpoint's own.
    Checkpoint(Box<ChatTemplate>),
    /// The family's.
    BuiltIn,
    /// The family's, which the tokenizer lacks a token for.
    Unusable {
        /// The token.
        missing: &'static str,
    },
}

/// What rendering needs of a loaded checkpoint.
pub(crate) struct Renderer<'a> {
    pub(crate) template: &'a Template,
    pub(crate) family: ChatFamily,
    /// Tokens that fit into the model's context.
    pub(crate) context: usize,
    pub(crate) limit: PromptLimit,
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) guarded: &'a GuardedCharacters,
    pub(crate) special_tokens: &'a SpecialTokens,
    /// Ids of `<think>` and `</think>`, if the tokenizer has them.
    pub(crate) think: Option<(u32, u32)>,
}

impl Renderer<'_> {
    pub(crate) fn render(&self, prompt: &ChatPrompt) -> Result<RenderedPrompt, TextError> {
        let is_reserved = |name: &&String| RESERVED.contains(&name.as_str());
        if let Some(name) = prompt.template_kwargs.keys().find(is_reserved) {
            return Err(TextError::ReservedTemplateArgument { name: name.clone() });
        }
        self.limit.check_conversation(prompt)?;
        let messages = match self.template {
            Template::Checkpoint(_) => history::prepare(&prompt.messages),
            Template::BuiltIn | Template::Unusable { .. } => history::with_split_reasoning(&prompt.messages),
        };
        let guard = Guard::new(self.guarded, &used_characters(&messages, prompt))?;
        let wish = self.wish(prompt)?;
        let rendered = match self.template {
            Template::Checkpoint(template) => {
                template.render(self.variables(&messages, prompt, wish, &guard))?
            }
            Template::BuiltIn => self.family.render(&Conversation {
                messages: &messages,
                tools: &prompt.tools,
                thinking: wish.level_or(self.family.default_level()),
                add_generation_prompt: prompt.add_generation_prompt,
                guard: &guard,
            })?,
            Template::Unusable { missing } => return Err(TextError::NoChatTemplate { missing }),
        };
        self.limit.check_text(&rendered)?;
        let tokens = self.tokenizer.encode_pieces(&rendered, |text| guard.restore(text))?;
        let in_reasoning = self.think.is_some_and(|(open, close)| {
            tokens.iter().rev().find(|&&id| id == open || id == close) == Some(&open)
        });
        Ok(RenderedPrompt { tokens, text: guard.restore(&rendered), in_reasoning })
    }

    /// What the request says of thinking, at the family's own level.
    fn wish(&self, prompt: &ChatPrompt) -> Result<Wish, TextError> {
        let kwargs = &prompt.template_kwargs;
        if prompt.thinking != Thinking::Default {
            return Ok(self.wish_of(prompt.thinking));
        }
        let mut wish = match kwargs.get("reasoning_effort") {
            None | Some(Json::Null) => Wish::default(),
            Some(Json::String(word)) => self.wish_of(word.parse()?),
            Some(other) => return Err(TextError::UnknownThinkingLevel { word: other.to_string() }),
        };
        // A client that gave both a level and `enable_thinking` said the latter on purpose.
        if let Some(on) = kwargs.get("enable_thinking").and_then(Json::as_bool) {
            wish.enabled = Some(on);
        }
        Ok(wish)
    }

    fn wish_of(&self, thinking: Thinking) -> Wish {
        match thinking {
            Thinking::Default => Wish::default(),
            Thinking::Off => Wish { enabled: Some(false), level: None },
            Thinking::On => Wish { enabled: Some(true), level: None },
            Thinking::Level(level) => {
                Wish { enabled: Some(true), level: Some(self.family.own_level(level, self.context)) }
            }
        }
    }

    /// What the checkpoint's template is given.
    fn variables(&self, messages: &[Message], prompt: &ChatPrompt, wish: Wish, guard: &Guard) -> Value {
        let mut variables: Vec<(String, Value)> = Vec::new();
        for (name, text) in self.special_tokens {
            variables.push((name.to_string(), Value::from(text.as_str())));
        }
        let other = |name: &str| !matches!(name, "enable_thinking" | "reasoning_effort");
        for (name, value) in prompt.template_kwargs.iter().filter(|(name, _)| other(name)) {
            variables.push((name.clone(), json_value(value, guard)));
        }
        // Absent, not null: templates ask `is defined`.
        variables.extend(wish.enabled.map(|on| ("enable_thinking".to_string(), Value::from(on))));
        let word = wish.level.map(ThinkingLevel::as_str);
        variables.extend(word.map(|word| ("reasoning_effort".to_string(), Value::from(word))));
        variables.push(("messages".into(), messages.iter().map(|m| message_value(m, guard)).collect()));
        variables.push(("tools".into(), tools_value(&prompt.tools, guard)));
        variables.push(("documents".into(), Value::from(())));
        variables.push(("add_generation_prompt".into(), Value::from(prompt.add_generation_prompt)));
        Value::from_pairs(variables)
    }
}

/// Thinking as templates are told of it.
#[derive(Clone, Copy, Default)]
struct Wish {
    enabled: Option<bool>,
    level: Option<ThinkingLevel>,
}

impl Wish {
    /// The level to think at, `None` for not at all.
    fn level_or(self, default: ThinkingLevel) -> Option<ThinkingLevel> {
        self.enabled.unwrap_or(true).then(|| self.level.unwrap_or(default))
    }
}

/// No tools are `none`, as in transformers.
fn tools_value(tools: &[Json], guard: &Guard) -> Value {
    match tools {
        [] => Value::from(()),
        tools => tools.iter().map(|tool| json_value(tool, guard)).collect(),
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
