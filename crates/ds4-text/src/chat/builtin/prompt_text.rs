//! A prompt in the making: markup as it is, clients' text covered by the guard.

use serde_json::Value;

use super::super::guard::Guard;
use super::super::python_json::{JsonStyle, to_python_json};
use super::super::values::json_value;
use crate::TextError;

pub(super) struct PromptText<'a> {
    text: String,
    guard: &'a Guard,
}

impl<'a> PromptText<'a> {
    pub(super) fn new(guard: &'a Guard) -> Self {
        Self { text: String::new(), guard }
    }

    /// The template's own words.
    pub(super) fn markup(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// A client's words.
    pub(super) fn client(&mut self, text: &str) -> &mut Self {
        self.text.push_str(&self.guard.cover(text));
        self
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// JSON with a space after each comma and colon, as Python writes it.
pub(super) fn json(value: &Value) -> Result<String, TextError> {
    to_python_json(&json_value(value, &Guard::default()), &JsonStyle::default())
        .map_err(|error| TextError::TemplateFailed { line: None, message: error.to_string() })
}

/// A string as it is, anything else as JSON.
pub(super) fn text_or_json(value: &Value) -> Result<String, TextError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => json(other),
    }
}
