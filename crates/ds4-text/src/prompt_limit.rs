//! Sizes from which on a prompt is sure not to fit into the context, whatever its tokens are.
//!
//! Such a prompt is refused before it is encoded, which would take time and memory in proportion to its length, and as far
//! as it can be seen from the conversation, before it is rendered: a template that appends one tool after another to a text
//! takes time with the square of their number.

use crate::{ChatPrompt, TextError, Tokenizer};

/// What fits at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptLimit {
    /// Tokens of the context.
    context: usize,
    /// Bytes of text that so many tokens can stand for.
    bytes: usize,
}

impl PromptLimit {
    /// Of a context of so many tokens.
    pub(crate) fn new(context: usize, tokenizer: &Tokenizer) -> Self {
        /// Tokenizers compose characters first (NFC), which makes no text shorter than a third.
        const COMPOSITION: usize = 3;
        let ids = 0..u32::try_from(tokenizer.vocabulary_size()).unwrap_or(u32::MAX);
        let longest_token = ids.filter_map(|id| tokenizer.token_bytes(id)).map(<[u8]>::len).max();
        let bytes = context.saturating_mul(longest_token.unwrap_or(0)).saturating_mul(COMPOSITION);
        Self { context, bytes }
    }

    /// Checks a text that is to be encoded.
    pub(crate) fn check_text(&self, text: &str) -> Result<(), TextError> {
        self.check_bytes(text.len())
    }

    /// Checks a conversation that is to be rendered. Every message, tool and call has a token at least.
    pub(crate) fn check_conversation(&self, prompt: &ChatPrompt) -> Result<(), TextError> {
        let calls = prompt.messages.iter().map(|message| message.tool_calls.len()).sum::<usize>();
        let parts = prompt.messages.len() + prompt.tools.len() + calls;
        if parts > self.context {
            return Err(TextError::TooManyParts { context: self.context, parts });
        }
        self.check_bytes(prompt.messages.iter().map(|message| message.content.len()).sum())
    }

    fn check_bytes(&self, bytes: usize) -> Result<(), TextError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        Err(TextError::PromptTooLarge { context: self.context, bytes })
    }
}
