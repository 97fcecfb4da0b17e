//! Completions, whole and as chunks, which have the same shape.

use ds4_engine_api::{TokenLogprob, TokenLogprobs};
use ds4_text::{TextDelta, Tokenizer};
use serde::Serialize;
use serde_json::Map;

use crate::generation::{Counts, Finish, Step};
use crate::identity::Identity;
use crate::sse::{Frames, Writer};
use crate::state::ApiState;
use crate::wire::openai::{json_logprob, usage::Usage};

#[derive(Debug, Serialize)]
struct Completion<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: Vec<Choice>,
    /// With `include_usage` there in all chunks, and `null` in all but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Debug, Serialize)]
struct Choice {
    index: usize,
    text: String,
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
}

/// Columns, one entry a token.
#[derive(Debug, Default, Serialize)]
struct Logprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<f32>,
    /// A map from token to log-probability. Tokens with the same text (half characters, mostly) share an entry, which
    /// keeps the best.
    top_logprobs: Vec<Map<String, serde_json::Value>>,
    /// Where the token begins in the answer, in characters.
    text_offset: Vec<usize>,
}

/// Makes the columns; offsets go on from call to call.
#[derive(Debug, Default)]
struct LogprobColumns {
    offset: usize,
}

impl LogprobColumns {
    fn make(&mut self, tokens: &[TokenLogprobs], tokenizer: &Tokenizer) -> Logprobs {
        let mut columns = Logprobs::default();
        for token in tokens {
            let text = token_text(token.chosen, tokenizer);
            columns.text_offset.push(self.offset);
            self.offset += text.chars().count();
            columns.tokens.push(text);
            columns.token_logprobs.push(json_logprob(token.chosen));
            let mut top = Map::new();
            for &alternative in token.top.iter().chain([&token.chosen]) {
                // The chosen token is among them even if it is none of the best, as in OpenAI's API.
                top.entry(token_text(alternative, tokenizer)).or_insert(json_logprob(alternative).into());
            }
            columns.top_logprobs.push(top);
        }
        columns
    }
}

fn token_text(token: TokenLogprob, tokenizer: &Tokenizer) -> String {
    String::from_utf8_lossy(tokenizer.token_bytes(token.id).unwrap_or_default()).into_owned()
}

/// A raw answer has no channels: whatever comes is text.
fn text_of(deltas: Vec<TextDelta>) -> String {
    deltas
        .into_iter()
        .map(|delta| match delta {
            TextDelta::Content(text) | TextDelta::Reasoning(text) => text,
            TextDelta::ToolCall(_) => String::new(),
        })
        .collect()
}

/// The text of a whole answer, collected step by step.
#[derive(Debug, Default)]
pub(crate) struct CompletionAnswer {
    text: String,
    logprobs: Vec<TokenLogprobs>,
}

impl CompletionAnswer {
    /// Adds what one step brought.
    pub(crate) fn add(&mut self, deltas: Vec<TextDelta>, logprobs: Vec<TokenLogprobs>) {
        self.text.push_str(&text_of(deltas));
        self.logprobs.extend(logprobs);
    }

    /// The response's body.
    pub(crate) fn response<'a>(
        self,
        identity: &'a Identity,
        finish: Finish,
        counts: Counts,
        logprobs: Option<&Tokenizer>,
    ) -> impl Serialize + use<'a> {
        let logprobs = logprobs.map(|tokenizer| LogprobColumns::default().make(&self.logprobs, tokenizer));
        let choice = Choice { index: 0, text: self.text, logprobs, finish_reason: Some(finish.name()) };
        completion(identity, vec![choice], Some(Some(counts.into())))
    }
}

fn completion(identity: &Identity, choices: Vec<Choice>, usage: Option<Option<Usage>>) -> Completion<'_> {
    Completion {
        id: &identity.id,
        object: "text_completion",
        created: identity.created,
        model: &identity.model,
        system_fingerprint: &identity.system_fingerprint,
        choices,
        usage,
    }
}

/// Writes chunks: the pieces, the reason of the end, then the counts if they are wanted.
pub(crate) struct CompletionWriter {
    state: ApiState,
    identity: Identity,
    include_usage: bool,
    /// Present if chunks bear log-probabilities.
    columns: Option<LogprobColumns>,
}

impl CompletionWriter {
    /// `logprobs` says whether chunks bear log-probabilities.
    pub(crate) fn new(state: ApiState, identity: Identity, include_usage: bool, logprobs: bool) -> Self {
        Self { state, identity, include_usage, columns: logprobs.then(LogprobColumns::default) }
    }

    fn chunk(&self, choices: Vec<Choice>, usage: Option<Usage>, frames: &mut Frames) {
        frames.json(&completion(&self.identity, choices, self.include_usage.then_some(usage)));
    }
}

impl Writer for CompletionWriter {
    fn write(&mut self, step: Step, frames: &mut Frames) {
        match step {
            Step::Pieces { deltas, logprobs } => {
                let tokenizer = self.state.text().tokenizer();
                let logprobs = self.columns.as_mut().map(|columns| columns.make(&logprobs, tokenizer));
                let choice = Choice { index: 0, text: text_of(deltas), logprobs, finish_reason: None };
                self.chunk(vec![choice], None, frames);
            }
            Step::End { finish, counts } => {
                let finish_reason = Some(finish.name());
                let choice = Choice { index: 0, text: String::new(), logprobs: None, finish_reason };
                self.chunk(vec![choice], None, frames);
                if self.include_usage {
                    self.chunk(Vec::new(), Some(counts.into()), frames);
                }
                frames.done();
            }
        }
    }
}
