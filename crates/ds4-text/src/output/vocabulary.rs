//! What each generated token means to a reader of the answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::dsml;
use crate::Tokenizer;

/// The tokenizer seen from the output side.
pub(crate) struct OutputVocabulary {
    tokenizer: Arc<Tokenizer>,
    silent: BTreeSet<u32>,
    think: Option<(u32, u32)>,
    tool_call: Option<(u32, u32)>,
    /// The token in every tag of DSML.
    dsml: Option<u32>,
}

/// Meaning of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Special tokens, stop tokens, ids that do not exist: nothing to read.
    Silent,
    ThinkOpen,
    ThinkClose,
    ToolCallOpen,
    ToolCallClose,
    DsmlWord,
    Text,
}

impl OutputVocabulary {
    pub(crate) fn new(tokenizer: Arc<Tokenizer>, stop_tokens: &[u32]) -> Self {
        let pair = |open: &str, close: &str| tokenizer.added_id(open).zip(tokenizer.added_id(close));
        let dsml = tokenizer.added_id(dsml::WORD);
        let special = tokenizer.added_tokens().iter().filter(|(_, token)| token.special).map(|(&id, _)| id);
        let silent = special.chain(stop_tokens.iter().copied()).filter(|&id| Some(id) != dsml);
        Self {
            silent: silent.collect(),
            dsml,
            think: pair("<think>", "</think>"),
            tool_call: pair("<tool_call>", "</tool_call>"),
            tokenizer,
        }
    }

    /// Ids of `<think>` and `</think>`.
    pub(crate) fn think(&self) -> Option<(u32, u32)> {
        self.think
    }

    /// Whether answers may hold DSML.
    pub(crate) fn has_dsml(&self) -> bool {
        self.dsml.is_some()
    }

    pub(crate) fn meaning(&self, id: u32) -> Meaning {
        let is = |pair: Option<(u32, u32)>| pair.map(|(open, close)| (id == open, id == close));
        match (is(self.think), is(self.tool_call)) {
            (Some((true, _)), _) => Meaning::ThinkOpen,
            (Some((_, true)), _) => Meaning::ThinkClose,
            (_, Some((true, _))) => Meaning::ToolCallOpen,
            (_, Some((_, true))) => Meaning::ToolCallClose,
            _ if self.dsml == Some(id) => Meaning::DsmlWord,
            _ if self.silent.contains(&id) || self.tokenizer.token_bytes(id).is_none() => Meaning::Silent,
            _ => Meaning::Text,
        }
    }

    /// Bytes of a token, none for silent ones.
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        if self.silent.contains(&id) { &[] } else { self.tokenizer.token_bytes(id).unwrap_or_default() }
    }
}
