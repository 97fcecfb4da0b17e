//! Carries out what lines ask for.

use std::io;
use std::path::Path;

use ds4_engine_api::Engine as _;

use super::command::{Command, HELP};
use super::conversation::Conversation;
use super::saved;
use crate::answer::{Outcome, Question};
use crate::commands::sizes;
use crate::exit_code::Usage;
use crate::interrupt::Interrupts;
use crate::model_loader::Running;
use crate::output::{self, Stream};
use crate::printer::{Printer, Reasoning};

/// A model, and a conversation with it.
pub(super) struct Session {
    pub(super) running: Running,
    pub(super) interrupts: Interrupts,
    pub(super) conversation: Conversation,
    pub(super) reasoning: Reasoning,
    pub(super) quiet: bool,
    /// How the last answer went.
    pub(super) last: Option<Outcome>,
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
        self.note(&format!("{} messages loaded.", self.conversation.messages.len()));
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
        let question = Question::chat(&self.running.text, &self.conversation.prompt(), &settings, context)?;
        let mut printer = Printer::new(self.reasoning);
        let outcome =
            question.answer(&*self.running.engine, &self.interrupts, &mut |piece| printer.show(piece))?;
        let (content, thought) = printer.finish()?;
        self.note(&outcome.summary());
        // An answer that was interrupted stands as far as it got.
        self.conversation.answer(content, thought);
        self.last = Some(outcome);
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
        let messages = self.conversation.messages.len();
        format!(
            "last answer    {last}\n\
             conversation   {messages} messages, context of {} tokens\n\
             since start    {} prompt tokens, {} generated\n\
             memory         {} of weights, {} for caches and results at most\n",
            model.context,
            status.prefill_tokens,
            status.decode_tokens,
            sizes::bytes(model.weight_bytes),
            sizes::bytes(memory.peak as u64),
        )
    }
}

/// Whether nobody reads the answers any more.
pub(super) fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
