//! The one place that turns the outcome of a command into an exit code and an error into text.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use crate::{hint, output};

/// Exit code after Ctrl-C: 128 and the number of the signal, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;
const FAILURE: u8 = 1;
const USAGE: u8 = 2;

/// The command line asks for something that cannot be. Wrapped in an error, it makes the exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

/// Ctrl-C stopped the command. There is nothing to report.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl Error for Interrupted {}

/// Reports an error, if there is one, and decides the exit code: 0 success, 1 failure, 2 usage, 130 interrupted.
///
/// A reader of standard output that went away has what it wanted: that is success.
pub(crate) fn report(result: anyhow::Result<()>) -> ExitCode {
    ExitCode::from(match result {
        Ok(()) => 0,
        Err(error) => {
            let code = code(&error);
            match error.downcast_ref::<clap::Error>() {
                Some(usage) => {
                    // Help goes to standard output and may meet a closed pipe like any other text.
                    let _ = usage.print();
                }
                None if code == FAILURE || code == USAGE => output::stderr(&text(&error)),
                None => {}
            }
            code
        }
    })
}

fn code(error: &anyhow::Error) -> u8 {
    if let Some(usage) = error.downcast_ref::<clap::Error>() {
        return u8::try_from(usage.exit_code()).unwrap_or(USAGE);
    }
    if error.is::<Interrupted>() {
        return INTERRUPTED;
    }
    let broken_pipe = |cause: &(dyn Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    match error {
        error if error.chain().any(broken_pipe) => 0,
        error if error.is::<Usage>() => USAGE,
        _ => FAILURE,
    }
}

/// `error: ` and the message, its causes below it, and a hint where there is one.
pub(crate) fn text(error: &anyhow::Error) -> String {
    let mut message = error.to_string();
    let mut text = format!("error: {message}\n");
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Many messages of libraries end with their cause already.
        if !message.contains(&cause) {
            text.push_str(&format!("  caused by: {}\n", cause.replace('\n', "\n  ")));
            message = cause;
        }
    }
    if let Some(hint) = hint::of(error) {
        text.push_str(&format!("hint: {hint}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context as _, anyhow};

    #[test]
    fn each_outcome_has_its_code() {
        assert_eq!(code(&anyhow!("no such model")), 1);
        assert_eq!(code(&Usage("no prompt".into()).into()), 2);
        assert_eq!(code(&Interrupted.into()), 130);
        let closed = Err::<(), _>(io::Error::from(io::ErrorKind::BrokenPipe)).context("cannot print");
        assert_eq!(code(&closed.unwrap_err()), 0);
        let full = Err::<(), _>(io::Error::from(io::ErrorKind::StorageFull)).context("cannot print");
        assert_eq!(code(&full.unwrap_err()), 1);
    }

    #[test]
    fn causes_are_told_once() {
        let error = anyhow!("disk on fire").context("cannot read a: disk on fire").context("cannot load");
        assert_eq!(text(&error), "error: cannot load\n  caused by: cannot read a: disk on fire\n");
    }
}
