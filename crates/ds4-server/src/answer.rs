//! One answer: a request goes to the engine, its events come back as pieces of text. What happens to the pieces is up to
//! the caller.

use std::io;
use std::sync::mpsc;

use ds4_engine_api::{
    CancelToken, Engine, EngineError, Event, FinishReason, GenerateRequest, SessionUse, Usage,
};
use ds4_text::{ChatPrompt, OutputOptions, OutputStream, TextDelta, TextModel, Timelines};

use crate::flags::AnswerSettings;
use crate::interrupt::Interrupts;

/// A prompt ready for the engine, and the reader of its answer.
pub(crate) struct Question {
    request: GenerateRequest,
    output: OutputStream,
}

impl Question {
    /// Renders a conversation with the model's chat template. What `timelines` remember of it keeps its tokens.
    pub(crate) fn chat(
        text: &TextModel,
        timelines: &Timelines,
        prompt: &ChatPrompt,
        settings: &AnswerSettings,
        context: usize,
    ) -> anyhow::Result<Self> {
        let rendered = text.render_chat(prompt)?;
        let options = OutputOptions { in_reasoning: rendered.in_reasoning, ..OutputOptions::default() };
        let tokens = timelines.apply(text.tokenizer(), rendered.tokens);
        let shared_prefix = text.shared_prefix(prompt, &tokens);
        let mut question = Self::new(text, tokens, options, settings, context);
        question.request.shared_prefix = shared_prefix;
        Ok(question)
    }

    /// Makes it part of a session, and says what that is about.
    pub(crate) fn in_session(mut self, session: &str, title: Option<String>) -> Self {
        self.request.session = SessionUse { id: Some(session.to_owned()), title, ..SessionUse::default() };
        self
    }

    /// Makes it part of no conversation: nothing of it is kept.
    pub(crate) fn aside(mut self) -> Self {
        self.request.session.keeps = false;
        self
    }

    /// Takes a prompt as it is, special tokens included.
    pub(crate) fn raw(
        text: &TextModel,
        prompt: &str,
        settings: &AnswerSettings,
        context: usize,
    ) -> anyhow::Result<Self> {
        let tokens = text.encode_raw(prompt)?;
        let options = OutputOptions { raw: true, ..OutputOptions::default() };
        Ok(Self::new(text, tokens, options, settings, context))
    }

    fn new(
        text: &TextModel,
        prompt: Vec<u32>,
        options: OutputOptions,
        settings: &AnswerSettings,
        context: usize,
    ) -> Self {
        let request = GenerateRequest {
            prompt,
            sampling: settings.sampling.clone(),
            max_tokens: settings.max_tokens.unwrap_or(context),
            stop_tokens: text.stop_tokens().to_vec(),
            logprobs: None,
            speculation: settings.speculation,
            session: SessionUse::default(),
            shared_prefix: 0,
        };
        Self { request, output: text.output(options) }
    }

    /// Has it answered and hands what comes to `show`. Ctrl-C ends the answer early, as does a failing `show`.
    pub(crate) fn answer(
        mut self,
        engine: &dyn Engine,
        interrupts: &Interrupts,
        show: &mut dyn FnMut(Piece) -> io::Result<()>,
    ) -> anyhow::Result<Outcome> {
        let (sender, events) = mpsc::channel();
        let mut timeline = self.request.prompt.clone();
        let mut miss = None;
        // Unbounded: the engine's thread must not wait for the terminal.
        let cancel = CancelOnDrop(engine.submit(self.request, Box::new(sender))?);
        let _stopping = interrupts.stops(&cancel.0);
        for event in events {
            match event {
                Event::Queued { .. } => {}
                Event::Started { miss: reason, .. } => miss = reason,
                Event::Prefill { done, total } => show(Piece::Prefill { done, total })?,
                Event::Tokens(tokens) => {
                    for token in tokens {
                        timeline.push(token.id);
                        self.output.push(token.id).into_iter().map(Piece::Text).try_for_each(&mut *show)?;
                    }
                }
                Event::Finished { reason, usage } => {
                    self.output.finish().into_iter().map(Piece::Text).try_for_each(show)?;
                    return Ok(Outcome { reason, usage, timeline, miss });
                }
                Event::Failed(error) => return Err(error.into()),
            }
        }
        // The engine always sends a last event; without one, its thread is gone.
        Err(EngineError::Stopped.into())
    }
}

/// What comes of a question, in the order in which it is to be shown.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// So many tokens of the prompt have been read.
    Prefill {
        /// So far.
        done: usize,
        /// In all.
        total: usize,
    },
    /// More text.
    Text(TextDelta),
}

/// How an answer ended.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Why.
    pub(crate) reason: FinishReason,
    /// Counts and times.
    pub(crate) usage: Usage,
    /// Tokens of the prompt and the answer.
    pub(crate) timeline: Vec<u32>,
    /// Why the prompt was read from its start, if it was.
    pub(crate) miss: Option<String>,
}

impl Outcome {
    /// Tokens and speed, for people.
    pub(crate) fn summary(&self) -> String {
        let usage = &self.usage;
        let ending = match self.reason {
            FinishReason::Stop => "",
            FinishReason::Length => ", stopped at the longest length",
            FinishReason::Cancelled => ", interrupted",
        };
        let drafts = &usage.speculation;
        let ahead = match drafts.drafted + drafts.copy_drafted {
            0 => String::new(),
            all => format!(", {} of {all} drafted tokens accepted", drafts.accepted + drafts.copied),
        };
        let known = match usage.cached_tokens {
            0 => String::new(),
            known => format!(", {known} of them known"),
        };
        format!(
            "{}, {:.1} tokens/s, first token after {:.2} s (prompt of {} tokens{known}){ahead}{ending}",
            counted(usage.completion_tokens as u64, "token"),
            usage.decode_tokens_per_second(),
            usage.time_to_first_token(),
            usage.prompt_tokens,
        )
    }

    /// What drafting ahead did, for people; `None` if nothing was drafted.
    pub(crate) fn drafting(&self) -> Option<String> {
        let drafts = &self.usage.speculation;
        let mut parts = Vec::new();
        if drafts.cycles > 0 {
            let positions: Vec<String> = drafts.accepted_by_position.iter().map(u64::to_string).collect();
            let cycles = counted(drafts.cycles, "cycle");
            let (accepted, drafted, positions) = (drafts.accepted, drafts.drafted, positions.join(" + "));
            parts.push(format!("head {accepted} of {drafted} in {cycles} ({positions} by position)"));
        }
        if drafts.copy_rounds > 0 {
            let rounds = counted(drafts.copy_rounds, "round");
            parts.push(format!("copied {} of {} in {rounds}", drafts.copied, drafts.copy_drafted));
        }
        if parts.is_empty() {
            return None;
        }
        let milliseconds = |seconds: f64| format!("{:.1} ms", 1e3 * seconds);
        parts.push(format!(
            "{}, {}",
            counted(drafts.corrections, "correction"),
            counted(drafts.bonus, "bonus token")
        ));
        parts.push(counted(drafts.verify_passes, "pass"));
        parts.push(format!(
            "{} drafting, {} checking, {} taking back",
            milliseconds(drafts.draft_seconds),
            milliseconds(drafts.verify_seconds),
            milliseconds(drafts.repair_seconds)
        ));
        Some(parts.join("; "))
    }
}

/// A number of things.
fn counted(number: u64, thing: &str) -> String {
    let ending = match (number, thing.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{number} {thing}{ending}")
}

/// Stops an answer that nobody reads any more: otherwise the engine would finish it before the program can end.
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
