//! The chat templates of the three families, for checkpoints that bring none. They follow what the golden masters render.
//!
//! Common to them: system messages are read first wherever they stand, because their formats have one place for
//! instructions; a text that would close the markup it stands in has the `<` of its closing tag escaped.

pub(super) mod deepseek;
pub(super) mod glm;
mod prompt_text;
pub(super) mod qwen;

use serde_json::{Map, Value};

use super::guard::Guard;
use super::message::{Message, Role, ToolCall};
use super::thinking::ThinkingLevel;

use super::history::arguments_object;
use prompt_text::PromptText;

/// What a built-in template renders.
pub(crate) struct Conversation<'a> {
    /// Oldest first, reasoning apart from the answers.
    pub(crate) messages: &'a [Message],
    /// As the client sent them.
    pub(crate) tools: &'a [Value],
    /// The family's own level; `None` answers at once.
    pub(crate) thinking: Option<ThinkingLevel>,
    pub(crate) add_generation_prompt: bool,
    /// Covers what clients wrote.
    pub(crate) guard: &'a Guard,
}

impl<'a> Conversation<'a> {
    fn system_texts(&self) -> impl Iterator<Item = &'a str> {
        let system = self.messages.iter().filter(|message| message.role == Role::System);
        system.map(|message| message.content.as_str())
    }

    /// All but the system messages.
    fn turns(&self) -> Vec<Turn<'a>> {
        let spoken: Vec<&Message> =
            self.messages.iter().filter(|message| message.role != Role::System).collect();
        let uses_tools = self.uses_tools();
        let last_question = spoken.iter().rposition(|message| message.role != Role::Assistant);
        let is_new = |at: usize| last_question.is_none_or(|question| at > question);
        (0..spoken.len())
            .map(|at| Turn {
                message: spoken[at],
                continues: at > 0 && spoken[at - 1].role == spoken[at].role,
                keeps_reasoning: self.thinking.is_some() && (uses_tools || is_new(at)),
            })
            .collect()
    }

    /// Tools are offered, or were called before.
    fn uses_tools(&self) -> bool {
        let is_use = |message: &Message| message.role == Role::Tool || !message.tool_calls.is_empty();
        !self.tools.is_empty() || self.messages.iter().any(is_use)
    }

    /// Descriptions of the functions, without the wrapper that says that they are functions.
    fn functions(&self) -> impl Iterator<Item = &'a Value> {
        self.tools.iter().map(|tool| tool.get("function").unwrap_or(tool))
    }

    /// Arguments in the order of the tool's schema, those that it does not know last.
    fn ordered_arguments(&self, call: &ToolCall) -> Vec<(String, Value)> {
        let mut arguments: Map<String, Value> = arguments_object(&call.arguments).into_owned();
        let function = self.functions().find(|function| function["name"] == call.name.as_str());
        let schema = function.and_then(|function| function["parameters"]["properties"].as_object());
        let mut ordered: Vec<(String, Value)> = Vec::with_capacity(arguments.len());
        for key in schema.into_iter().flat_map(Map::keys) {
            ordered.extend(arguments.shift_remove_entry(key));
        }
        ordered.extend(arguments);
        ordered
    }
}

/// A message that is not the system's.
struct Turn<'a> {
    message: &'a Message,
    /// The message before has the same role.
    continues: bool,
    /// By the rule of DeepSeek and GLM: thinking is on, and the answer is newer than the last question or tools are in use.
    keeps_reasoning: bool,
}

impl<'a> Turn<'a> {
    /// The reasoning that the history shows, which may be empty; `None` where it shows none.
    fn kept_reasoning(&self) -> Option<&'a str> {
        self.keeps_reasoning.then(|| self.message.reasoning_content.as_deref().unwrap_or_default())
    }
}

/// Without whitespace at both ends, as C's `isspace` has it.
fn trim(text: &str) -> &str {
    text.trim_matches(|character: char| character.is_ascii_whitespace() || character == '\u{b}')
}

/// `text` with the `<` of every `closing` tag replaced.
fn without_closing(text: &str, closing: &str, replacement: &str) -> String {
    text.replace(closing, &format!("{replacement}{}", closing.trim_start_matches('<')))
}
