//! Carries out what lines ask for.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::Path;

use anyhow::Context as _;
use ds4_engine_api::{Engine as _, FinishReason};
use ds4_text::{Compaction, CompactionError, TextDelta, Timelines, title_of};

use super::command::{Command, HELP};
use super::conversation::Conversation;
use super::saved;
use crate::answer::{Outcome, Piece, Question};
use crate::commands::sizes;
use crate::exit_code::Usage;
use crate::interrupt::Interrupts;
use crate::model_loader::Running;
use crate::output::{self, Stream};
use crate::printer::{Printer, Reasoning};
use crate::saved_chats;

/// A model, and a conversation with it.
pub(super) struct Session {
    pub(super) running: Running,
    pub(super) interrupts: Interrupts,
    pub(super) conversation: Conversation,
    pub(super) reasoning: Reasoning,
    pub(super) quiet: bool,
    /// How the last answer went.
    pub(super) last: Option<Outcome>,
    /// What was sampled.
    pub(super) timelines: Timelines,
    /// The name under which the engine keeps the conversation.
    pub(super) id: String,
}

/// A name that no other conversation has.
pub(super) fn new_id() -> String {
    // Keys of the standard library's hasher come from the system's random source.
    let drawn = RandomState::new().build_hasher().finish();
    format!("chat-{:012x}", drawn & 0xffff_ffff_ffff)
}

/// What comes after a line.
pub(super) enum Then {
    GoOn,
    Quit,
}

impl Session {
    /// Carries out a line.
    pub(super) fn take(&mut self, line: &str) -> anyhow::Result<Then> {
        match Command::parse(line)? {
            Command::Message(text) => {
                let before = self.conversation.clone();
                self.conversation.ask(text);
                self.answer_or_return_to(before)?;
            }
            Command::Help => output::stdout(HELP)?,
            Command::System(text) => {
                self.conversation.start_anew(text);
                self.id = new_id();
                self.note("The conversation starts anew.");
            }
            Command::Think(thinking) => self.conversation.settings.thinking = thinking,
            Command::Regenerate => {
                let before = self.conversation.clone();
                if !self.conversation.take_back_answer() {
                    return Err(Usage("there is no message to answer yet".into()).into());
                }
                self.answer_or_return_to(before)?;
            }
            Command::Compact => self.compact()?,
            Command::Stats => output::stdout(&self.stats())?,
            Command::Save(file) => {
                saved::save(&file, &self.conversation, &self.running.engine.model().id)?;
                self.note(&format!("Saved in {}.", file.display()));
            }
            Command::Load(file) => self.load(&file)?,
            Command::Quit => return Ok(Then::Quit),
        }
        Ok(Then::GoOn)
    }

    /// Goes on with a saved conversation and its settings.
    pub(super) fn load(&mut self, file: &Path) -> anyhow::Result<()> {
        let speculation = self.conversation.settings.speculation;
        self.conversation = saved::load(file)?;
        self.conversation.settings.speculation = speculation;
        self.id = new_id();
        self.note(&format!("{} messages loaded.", self.conversation.messages.len()));
        Ok(())
    }

    /// Goes on with the conversation of a session, the last one if `id` is empty.
    pub(super) fn resume(&mut self, id: &str) -> anyhow::Result<()> {
        let store = self.running.store.clone().ok_or_else(|| {
            Usage("--resume needs the folder of the sessions, which is not used here".into())
        })?;
        let id = match id {
            "" => saved_chats::newest(store.path())?.unwrap_or_default(),
            id => id.to_owned(),
        };
        let file = saved_chats::path(store.path(), &id).filter(|file| file.exists());
        let missing = || Usage(format!("there is no such chat in {}", store.path().display()));
        let file = file.ok_or_else(missing)?;
        self.load(&file)?;
        // The next prompt is to have the tokens that were sampled, for the saved state stands for these.
        if let Some(record) = store.session(&id) {
            self.timelines.keep(record.timeline);
        }
        self.id = id;
        Ok(())
    }

    /// Keeps what was said beside the state, for a later run.
    fn keep(&self) {
        let Some(store) = &self.running.store else { return };
        let Some(file) = saved_chats::path(store.path(), &self.id) else { return };
        if let Err(error) = saved::save_whole(&file, &self.conversation, &self.running.engine.model().id) {
            output::stderr(&format!("warning: {error:#}; `--resume` will not have this turn\n"));
        }
    }

    /// Puts a summary by the model in the place of the older messages. Whatever fails, nothing has changed.
    fn compact(&mut self) -> anyhow::Result<()> {
        let nothing = |error: CompactionError| Usage(error.to_string());
        let compaction = Compaction::of(&self.conversation.prompt()).map_err(nothing)?;
        let model = &self.running;
        let context = model.engine.model().context;
        let settings = self.conversation.answer_settings();
        let question =
            Question::chat(&model.text, &self.timelines, compaction.question(), &settings, context)?.aside();
        let mut summary = String::new();
        let outcome = question.answer(&*model.engine, &self.interrupts, &mut |piece| {
            if let Piece::Text(TextDelta::Content(text)) = piece {
                summary.push_str(&text);
            }
            Ok(())
        });
        let outcome = outcome.context("the conversation was not compacted")?;
        let compacted = compaction.finish(&summary, outcome.reason == FinishReason::Stop)?;
        self.note(&format!(
            "A summary of {} tokens stands for {} messages.",
            outcome.usage.completion_tokens, compacted.replaced
        ));
        self.conversation.compact(compacted);
        self.keep();
        Ok(())
    }

    /// What a person sees first.
    pub(super) fn greeting(&self) -> String {
        let model = self.running.engine.model();
        let parameters = sizes::count(model.parameters);
        format!(
            "{}: {parameters} parameters, context of {} tokens. /help lists the commands.",
            model.id, model.context
        )
    }

    /// Answers the last message. A message that cannot be answered, being too long perhaps, is forgotten: it would stand in
    /// the way of the next one.
    fn answer_or_return_to(&mut self, before: Conversation) -> anyhow::Result<()> {
        let answered = self.answer();
        if answered.is_err() {
            self.conversation = before;
        }
        answered
    }

    fn answer(&mut self) -> anyhow::Result<()> {
        let context = self.running.engine.model().context;
        let settings = self.conversation.answer_settings();
        let prompt = self.conversation.prompt();
        let question = Question::chat(&self.running.text, &self.timelines, &prompt, &settings, context)?;
        let question = question.in_session(&self.id, title_of(&prompt.messages));
        let mut printer = Printer::new(self.reasoning);
        let outcome =
            question.answer(&*self.running.engine, &self.interrupts, &mut |piece| printer.show(piece))?;
        let (content, thought) = printer.finish()?;
        self.note(&outcome.summary());
        // An answer that was interrupted stands as far as it got.
        self.conversation.answer(content, thought);
        self.timelines.keep(outcome.timeline.clone());
        self.last = Some(outcome);
        self.keep();
        Ok(())
    }

    fn note(&self, text: &str) {
        if !self.quiet {
            output::stderr(&Stream::Err.dimmed(&format!("{text}\n")));
        }
    }

    fn stats(&self) -> String {
        let model = self.running.engine.model();
        let status = self.running.engine.status();
        let memory = self.running.device.memory().stats();
        let last = self.last.as_ref().map_or("none yet".to_owned(), Outcome::summary);
        let drafts = self.last.as_ref().and_then(Outcome::drafting).unwrap_or_else(|| "none".to_owned());
        let messages = self.conversation.messages.len();
        let reuse = match &self.last {
            None => String::new(),
            Some(Outcome { miss: Some(reason), .. }) => {
                format!(", nothing reused: {reason}{}", meaning(reason))
            }
            Some(outcome) => format!(", {} prompt tokens reused", outcome.usage.cached_tokens),
        };
        format!(
            "last answer    {last}\n\
             its drafts     {drafts}\n\
             conversation   {messages} messages, context of {} tokens\n\
             session        {}{reuse}\n\
             since start    {} prompt tokens, {} generated\n\
             memory         {} of weights, {} for caches and results at most\n",
            model.context,
            self.id,
            status.prefill_tokens,
            status.decode_tokens,
            sizes::bytes(model.weight_bytes),
            sizes::bytes(memory.peak as u64),
        )
    }
}

/// What a reason of the engine means to somebody who has changed something since the conversation began.
fn meaning(reason: &str) -> &'static str {
    match reason {
        "settings_changed" => {
            " (computed with another --kv, --cpu-activations or --kernels; read again, and kept for these)"
        }
        "model_changed" => " (computed by another model; read again, and kept for this one)",
        "template_changed" => {
            " (made with another tokenizer or chat template; read again, and kept for these)"
        }
        _ => "",
    }
}

/// Whether nobody reads the answers any more.
pub(super) fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
