//! Chat completions, whole and as chunks. `reasoning_content` is not OpenAI's; clients of reasoning models read it.

use ds4_engine_api::{TokenLogprob, TokenLogprobs};
use ds4_text::{ParsedToolCall, TextDelta, Tokenizer};
use serde::Serialize;

use crate::generation::{Counts, Finish, Step};
use crate::identity::Identity;
use crate::sse::{Frames, Writer};
use crate::state::ApiState;
use crate::wire::openai::{json_logprob, usage::Usage};

#[derive(Debug, Serialize)]
struct ToolCall {
    /// Only in chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    id: String,
    r#type: &'static str,
    function: Function,
}

#[derive(Debug, Serialize)]
struct Function {
    name: String,
    arguments: String,
}

#[derive(Debug, Serialize)]
struct Logprobs {
    content: Vec<ContentToken>,
    refusal: Option<()>,
}

#[derive(Debug, Serialize)]
struct ContentToken {
    #[serde(flatten)]
    chosen: OneToken,
    top_logprobs: Vec<OneToken>,
}

#[derive(Debug, Serialize)]
struct OneToken {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl ToolCall {
    fn new(index: Option<usize>, call: ParsedToolCall) -> Self {
        let function = Function { name: call.name, arguments: call.arguments };
        Self { index, id: call.id, r#type: "function", function }
    }
}

impl OneToken {
    fn new(token: TokenLogprob, tokenizer: &Tokenizer) -> Self {
        let bytes = tokenizer.token_bytes(token.id).unwrap_or_default();
        Self {
            token: String::from_utf8_lossy(bytes).into_owned(),
            logprob: json_logprob(token),
            bytes: bytes.to_vec(),
        }
    }
}

impl ContentToken {
    fn new(token: TokenLogprobs, tokenizer: &Tokenizer) -> Self {
        Self {
            chosen: OneToken::new(token.chosen, tokenizer),
            top_logprobs: token.top.into_iter().map(|token| OneToken::new(token, tokenizer)).collect(),
        }
    }
}

/// Message and calls of a whole answer, collected step by step.
#[derive(Debug, Default)]
pub(crate) struct ChatAnswer {
    reasoning: String,
    content: String,
    tool_calls: Vec<ToolCall>,
    logprobs: Vec<TokenLogprobs>,
}

#[derive(Debug, Serialize)]
struct ChatCompletion {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    system_fingerprint: String,
    choices: [Choice; 1],
    usage: Usage,
}

#[derive(Debug, Serialize)]
struct Choice {
    index: usize,
    message: Message,
    logprobs: Option<Logprobs>,
    finish_reason: &'static str,
}

#[derive(Debug, Serialize)]
struct Message {
    role: &'static str,
    /// `null` if there are only calls.
    content: Option<String>,
    refusal: Option<()>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
}

impl ChatAnswer {
    /// Adds what one step brought.
    pub(crate) fn add(&mut self, deltas: Vec<TextDelta>, logprobs: Vec<TokenLogprobs>) {
        self.logprobs.extend(logprobs);
        for delta in deltas {
            match delta {
                TextDelta::Reasoning(text) => self.reasoning.push_str(&text),
                TextDelta::Content(text) => self.content.push_str(&text),
                TextDelta::ToolCall(call) => self.tool_calls.push(ToolCall::new(None, call)),
            }
        }
    }

    /// The response's body.
    pub(crate) fn response(
        self,
        identity: Identity,
        finish: Finish,
        counts: Counts,
        logprobs: Option<&Tokenizer>,
    ) -> impl Serialize {
        let only_calls = self.content.is_empty() && !self.tool_calls.is_empty();
        ChatCompletion {
            id: identity.id,
            object: "chat.completion",
            created: identity.created,
            model: identity.model,
            system_fingerprint: identity.system_fingerprint,
            choices: [Choice {
                index: 0,
                message: Message {
                    role: "assistant",
                    content: (!only_calls).then_some(self.content),
                    refusal: None,
                    reasoning_content: (!self.reasoning.is_empty()).then_some(self.reasoning),
                    tool_calls: self.tool_calls,
                },
                logprobs: logprobs.map(|tokenizer| content_logprobs(self.logprobs, tokenizer)),
                finish_reason: finish.name(),
            }],
            usage: counts.into(),
        }
    }
}

fn content_logprobs(tokens: Vec<TokenLogprobs>, tokenizer: &Tokenizer) -> Logprobs {
    let content = tokens.into_iter().map(|token| ContentToken::new(token, tokenizer)).collect();
    Logprobs { content, refusal: None }
}

#[derive(Debug, Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: Vec<ChunkChoice>,
    /// With `include_usage` there in all chunks, and `null` in all but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Debug, Default, Serialize)]
struct ChunkChoice {
    index: usize,
    delta: Delta,
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Debug, Default, Serialize)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
}

/// Writes chunks: first the role, then the pieces, then the reason of the end, then the counts if they are wanted.
pub(crate) struct ChatWriter {
    state: ApiState,
    identity: Identity,
    include_usage: bool,
    logprobs: bool,
    role_sent: bool,
}

impl ChatWriter {
    /// `logprobs` says whether chunks bear log-probabilities.
    pub(crate) fn new(state: ApiState, identity: Identity, include_usage: bool, logprobs: bool) -> Self {
        Self { state, identity, include_usage, logprobs, role_sent: false }
    }

    fn chunk(&self, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> Chunk<'_> {
        Chunk {
            id: &self.identity.id,
            object: "chat.completion.chunk",
            created: self.identity.created,
            model: &self.identity.model,
            system_fingerprint: &self.identity.system_fingerprint,
            choices,
            usage: self.include_usage.then_some(usage),
        }
    }

    fn delta(&self, delta: Delta, logprobs: Option<Logprobs>, frames: &mut Frames) {
        frames.json(&self.chunk(vec![ChunkChoice { delta, logprobs, ..ChunkChoice::default() }], None));
    }

    fn pieces(&self, deltas: Vec<TextDelta>, tokens: Vec<TokenLogprobs>, frames: &mut Frames) {
        // All of a step's log-probabilities go with its first content.
        let mut logprobs = self.logprobs.then(|| content_logprobs(tokens, self.state.text().tokenizer()));
        for delta in deltas {
            match delta {
                TextDelta::Reasoning(text) => {
                    self.delta(Delta { reasoning_content: Some(text), ..Delta::default() }, None, frames);
                }
                TextDelta::Content(text) => {
                    let delta = Delta { content: Some(text), ..Delta::default() };
                    self.delta(delta, logprobs.take(), frames);
                }
                TextDelta::ToolCall(call) => {
                    let tool_calls = vec![ToolCall::new(Some(call.index), call)];
                    self.delta(Delta { tool_calls, ..Delta::default() }, None, frames);
                }
            }
        }
    }
}

impl Writer for ChatWriter {
    fn write(&mut self, step: Step, frames: &mut Frames) {
        if !std::mem::replace(&mut self.role_sent, true) {
            let delta = Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() };
            self.delta(delta, None, frames);
        }
        match step {
            Step::Pieces { deltas, logprobs } => self.pieces(deltas, logprobs, frames),
            Step::End { finish, counts } => {
                let finish_reason = Some(finish.name());
                frames.json(&self.chunk(vec![ChunkChoice { finish_reason, ..ChunkChoice::default() }], None));
                if self.include_usage {
                    frames.json(&self.chunk(Vec::new(), Some(counts.into())));
                }
                frames.done();
            }
        }
    }
}
