//! `chat`: a conversation in the terminal. Lines come from `input`, commands are read by `command`, and what was said is
//! kept by `conversation`, which `saved` writes and reads.

mod command;
mod conversation;
mod input;
mod saved;
mod session;

use std::io::{self, IsTerminal as _};

use ds4_engine::RequestLimits;
use ds4_text::Timelines;

use crate::flags::ChatFlags;
use crate::interrupt::{Interrupts, WhenIdle};
use crate::model_loader;
use crate::output;
use crate::printer::Reasoning;

use conversation::Conversation;
use input::{Input, Line};
use session::{Session, Then};

pub(super) fn run(flags: ChatFlags) -> anyhow::Result<()> {
    if !flags.quiet {
        crate::log::start_warnings();
    }
    let running = model_loader::start(
        &flags.model.settings(),
        &flags.sessions.settings(),
        RequestLimits::ONE,
        flags.quiet,
    )?;
    let settings = flags.sampling.settings(running.text.defaults());
    let interactive = io::stdin().is_terminal();
    // At a terminal, the line editor sees Ctrl-C as a key.
    let interrupts = Interrupts::watch(if interactive { WhenIdle::Ignore } else { WhenIdle::Exit })?;
    let mut session = Session {
        running,
        interrupts,
        conversation: Conversation::new(flags.system, settings),
        reasoning: Reasoning::of(flags.show_thinking, flags.quiet),
        quiet: flags.quiet,
        last: None,
        timelines: Timelines::default(),
        id: session::new_id(),
    };
    if let Some(id) = &flags.resume {
        session.resume(id)?;
    }
    if let Some(file) = &flags.load {
        session.load(file)?;
    }
    let mut input = if interactive { Input::terminal(!flags.no_history)? } else { Input::script() };
    if interactive && !flags.quiet {
        output::stderr(&format!("{}\n", session.greeting()));
    }
    loop {
        match input.next()? {
            Line::Text(text) => match session.take(&text) {
                Ok(Then::GoOn) => {}
                Ok(Then::Quit) => return Ok(()),
                // A person can try again; a script could only go on with a conversation it does not expect.
                Err(error) if interactive && !session::is_closed(&error) => {
                    output::stderr(&crate::exit_code::text(&error));
                }
                Err(error) => return Err(error),
            },
            Line::Nothing => {}
            Line::End => return Ok(()),
        }
    }
}
