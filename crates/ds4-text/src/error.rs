//! What can go wrong between text and tokens. Which status or exit code follows is decided by the callers.

use thiserror::Error;

/// Why text could not be turned into tokens or back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TextError {
    /// `tokenizer.json` is missing fields, is not JSON or describes a tokenizer that cannot be built.
    #[error("tokenizer.json cannot be read: {reason}. Copy the file from the original checkpoint again")]
    InvalidTokenizer {
        /// What the tokenizer library found.
        reason: String,
    },
    /// The tokenizer does not map tokens to bytes, so text cannot be streamed from it.
    #[error("tokenizer.json is not a byte-level BPE tokenizer, the only kind that the supported models use")]
    NotByteLevel,
    /// The tokenizer refused a text.
    #[error("the text cannot be encoded: {reason}")]
    Encode {
        /// What the tokenizer library found.
        reason: String,
    },
    /// A JSON file of the checkpoint cannot be parsed.
    #[error("{file} cannot be parsed: {source}")]
    InvalidJson {
        /// Name of the file.
        file: &'static str,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// A field of a JSON file of the checkpoint has a value that means nothing.
    #[error("{file}: \"{field}\" is {value}, expected {expected}")]
    InvalidSetting {
        /// Name of the file.
        file: &'static str,
        /// Name of the field.
        field: &'static str,
        /// The value found, as JSON.
        value: String,
        /// What would be valid.
        expected: &'static str,
    },
    /// The checkpoint has no chat template, and its tokenizer is not the one that the family's built-in template is for.
    #[error(
        "the checkpoint has no chat template, and its tokenizer lacks the token \"{missing}\" of the built-in one: add \
         chat_template.jinja or \"chat_template\" in tokenizer_config.json, or send a plain completion"
    )]
    NoChatTemplate {
        /// The first token that is not there.
        missing: &'static str,
    },
    /// The chat template cannot be parsed.
    #[error("the chat template cannot be parsed{}: {message}", at_line(*line))]
    TemplateSyntax {
        /// Line in the template, from 1.
        line: Option<usize>,
        /// What the parser expected.
        message: String,
    },
    /// The chat template failed while it ran.
    #[error("the chat template failed{}: {message}", at_line(*line))]
    TemplateFailed {
        /// Line in the template, from 1.
        line: Option<usize>,
        /// What failed.
        message: String,
    },
    /// The chat template called `raise_exception`: it does not accept this conversation.
    #[error("the chat template refuses this conversation: {message}")]
    TemplateRaised {
        /// The template's own words.
        message: String,
    },
    /// A thinking level that this family does not have.
    #[error("unknown thinking level \"{word}\": valid are off, on, {}", crate::chat::ThinkingLevel::NAMES.join(", "))]
    UnknownThinkingLevel {
        /// The word as given.
        word: String,
    },
    /// A message role that no template knows.
    #[error("unsupported role \"{role}\": valid are system, developer, user, assistant, tool")]
    UnsupportedRole {
        /// The role as given.
        role: String,
    },
    /// A template argument would replace one that the program sets itself.
    #[error(
        "the template argument \"{name}\" is set by the request itself and cannot be given a second time"
    )]
    ReservedTemplateArgument {
        /// Its name.
        name: String,
    },
    /// The prompt cannot fit, whatever its tokens are: it was not encoded.
    #[error(
        "this model's maximum context length is {context} tokens, and a prompt of {bytes} bytes has more; shorten the prompt"
    )]
    PromptTooLarge {
        /// Tokens that fit.
        context: usize,
        /// Bytes of text in the prompt.
        bytes: usize,
    },
    /// The prompt cannot fit, because each of its parts is a token at least: it was not rendered.
    #[error(
        "this model's maximum context length is {context} tokens, and a prompt of {parts} messages, tools and calls has \
         more; shorten the prompt"
    )]
    TooManyParts {
        /// Tokens that fit.
        context: usize,
        /// Messages, tools and calls of tools.
        parts: usize,
    },
    /// The conversation uses up all private-use characters, one of which is needed for each character of markup.
    #[error(
        "the conversation holds every private-use character of Unicode, none is left to mark its text with"
    )]
    NoFreePlaceholder,
}

/// Why a conversation was not made shorter. It stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompactionError {
    /// There is at most one turn.
    #[error("there is nothing to compact yet: the last turn stays as it is")]
    NothingToCompact,
    /// The model stopped before the end, or wrote nothing.
    #[error("the model did not finish a summary: the conversation stays as it is; try again")]
    NoSummary,
}

fn at_line(line: Option<usize>) -> String {
    line.map(|line| format!(" at line {line}")).unwrap_or_default()
}
