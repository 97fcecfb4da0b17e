//! Pieces of an answer, in the order in which they are to be shown.

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextDelta {
    /// More of what the model thinks.
    Reasoning(String),
    /// More of the answer.
    Content(String),
    /// A complete tool call.
    ToolCall(ParsedToolCall),
}

/// A tool call that was read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedToolCall {
    /// Position among the calls of this answer, from 0.
    pub index: usize,
    /// `call_` and 24 hexadecimal digits, different for each call.
    pub id: String,
    /// Name of the function.
    pub name: String,
    /// The arguments, a JSON object; `{}` if there are none.
    pub arguments: String,
}

/// Collects deltas; text of the same kind in a row becomes one.
#[derive(Debug, Default)]
pub struct DeltaList(Vec<TextDelta>);

impl DeltaList {
    pub(crate) fn reasoning(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(TextDelta::Reasoning(last)) => last.push_str(text),
            _ => self.0.push(TextDelta::Reasoning(text.to_string())),
        }
    }

    pub(crate) fn content(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(TextDelta::Content(last)) => last.push_str(text),
            _ => self.0.push(TextDelta::Content(text.to_string())),
        }
    }

    pub(crate) fn tool_call(&mut self, call: ParsedToolCall) {
        self.0.push(TextDelta::ToolCall(call));
    }

    /// Adds a delta.
    pub fn push(&mut self, delta: TextDelta) {
        match delta {
            TextDelta::Reasoning(text) => self.reasoning(&text),
            TextDelta::Content(text) => self.content(&text),
            TextDelta::ToolCall(call) => self.tool_call(call),
        }
    }

    /// What was collected, in order.
    pub fn into_vec(self) -> Vec<TextDelta> {
        self.0
    }
}
