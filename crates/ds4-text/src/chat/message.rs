//! A conversation as plain data, in the shape that all API dialects can be brought into.

use std::str::FromStr;

use serde_json::{Map, Value};

use super::Thinking;
use crate::TextError;

/// Everything that decides a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatPrompt {
    /// The conversation, oldest message first.
    pub messages: Vec<Message>,
    /// Tool descriptions as the client sent them, `{"type": "function", "function": {...}}`.
    pub tools: Vec<Value>,
    /// Whether and how hard the model thinks before it answers.
    pub thinking: Thinking,
    /// Further arguments of the template. `enable_thinking` and `reasoning_effort` count only if `thinking` is
    /// [`Thinking::Default`].
    pub template_kwargs: Map<String, Value>,
    /// End with the start of an assistant message, for the model to go on from.
    pub add_generation_prompt: bool,
}

impl ChatPrompt {
    /// A prompt for the next answer in a conversation, everything else as the template wants it.
    pub fn new(messages: Vec<Message>) -> Self {
        Self {
            messages,
            tools: Vec::new(),
            thinking: Thinking::Default,
            template_kwargs: Map::new(),
            add_generation_prompt: true,
        }
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The text, parts already joined.
    pub content: String,
    /// What the assistant thought before it answered.
    pub reasoning_content: Option<String>,
    /// Tools that the assistant called after its text.
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool message answers.
    pub tool_call_id: Option<String>,
    /// Name of the speaker or tool.
    pub name: Option<String>,
}

impl Message {
    /// A message that is only text.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            reasoning_content: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
        }
    }
}

/// A tool call in the history.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The id that the result refers to.
    pub id: String,
    /// Name of the function.
    pub name: String,
    /// A JSON object, or a string that holds one. Anything else is rendered as one parameter named `arguments`.
    pub arguments: Value,
}

/// Who speaks in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions. `developer` is another name for it.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl Role {
    /// The name that templates know.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

impl FromStr for Role {
    type Err = TextError;

    fn from_str(role: &str) -> Result<Self, TextError> {
        match role {
            "system" | "developer" => Ok(Self::System),
            "user" => Ok(Self::User),
            "assistant" => Ok(Self::Assistant),
            "tool" => Ok(Self::Tool),
            _ => Err(TextError::UnsupportedRole { role: role.to_string() }),
        }
    }
}
