//! `run`: answers one prompt on standard output.

use std::io::{self, IsTerminal as _, Read as _};

use anyhow::Context as _;
use ds4_engine::RequestLimits;
use ds4_engine_api::{Engine as _, FinishReason};
use ds4_text::{ChatPrompt, Message, Role, Timelines};

use crate::answer::Question;
use crate::exit_code::{Interrupted, Usage};
use crate::flags::{RunFlags, SessionSettings};
use crate::interrupt::{Interrupts, WhenIdle};
use crate::model_loader;
use crate::output::{self, Stream};
use crate::printer::{Printer, Reasoning};

pub(super) fn run(flags: RunFlags) -> anyhow::Result<()> {
    let prompt = read_prompt(flags.prompt.as_deref())?;
    let running = model_loader::start(
        &flags.model.settings(),
        &SessionSettings::default(),
        RequestLimits::ONE,
        flags.quiet,
    )?;
    let settings = flags.sampling.settings(running.text.defaults());
    let context = running.engine.model().context;
    let question = if flags.raw {
        Question::raw(&running.text, &prompt, &settings, context)?
    } else {
        let system = flags.system.map(|text| Message::new(Role::System, text));
        // A file ends with a line break that nobody means.
        let user = Message::new(Role::User, prompt.strip_suffix('\n').unwrap_or(&prompt));
        let messages = system.into_iter().chain([user]).collect();
        let prompt = ChatPrompt { thinking: settings.thinking, ..ChatPrompt::new(messages) };
        Question::chat(&running.text, &Timelines::default(), &prompt, &settings, context)?
    };

    let interrupts = Interrupts::watch(WhenIdle::Exit)?;
    let mut printer = Printer::new(Reasoning::of(flags.show_thinking, flags.quiet));
    let outcome = question.answer(&*running.engine, &interrupts, &mut |piece| printer.show(piece))?;
    printer.finish()?;
    if !flags.quiet {
        let drafts = outcome.drafting().map_or_else(String::new, |drafts| format!("drafts: {drafts}\n"));
        output::stderr(&Stream::Err.dimmed(&format!("{}\n{drafts}", outcome.summary())));
    }
    match outcome.reason {
        FinishReason::Cancelled => Err(Interrupted.into()),
        FinishReason::Stop | FinishReason::Length => Ok(()),
    }
}

fn read_prompt(argument: Option<&str>) -> anyhow::Result<String> {
    let prompt = match argument {
        Some("-") => read_stdin()?,
        None if !io::stdin().is_terminal() => read_stdin()?,
        None => {
            return Err(
                Usage("no prompt: give it as an argument, as @FILE, or on standard input".into()).into()
            );
        }
        Some(argument) => match argument.strip_prefix('@') {
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the prompt from {path}"))?,
            None => argument.to_owned(),
        },
    };
    if prompt.trim().is_empty() {
        return Err(Usage("the prompt is empty".into()).into());
    }
    Ok(prompt)
}

fn read_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text).context("cannot read the prompt from standard input")?;
    Ok(text)
}
