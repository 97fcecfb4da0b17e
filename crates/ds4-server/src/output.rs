//! Writing to the terminal or wherever standard output and standard error lead to.
//!
//! Standard output carries what the user asked for, and a failure to write it is the command's failure. Standard error
//! carries remarks, which nobody has to read: failures to write them are ignored.

use std::io::{self, IsTerminal as _, Write as _};

use crate::env_vars;

/// Writes text to standard output at once.
pub(crate) fn stdout(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes text to standard error at once.
pub(crate) fn stderr(text: &str) {
    let mut err = io::stderr().lock();
    // There is no place left to report a failure to.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Where text goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    /// Writes text to it.
    pub(crate) fn write(self, text: &str) -> io::Result<()> {
        match self {
            Self::Out => stdout(text),
            Self::Err => {
                stderr(text);
                Ok(())
            }
        }
    }

    /// Whether a person sees it.
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Self::Out => io::stdout().is_terminal(),
            Self::Err => io::stderr().is_terminal(),
        }
    }

    /// Whether a terminal shows it and the user did not object to colours.
    pub(crate) fn is_coloured(self) -> bool {
        self.is_terminal() && env_vars::get(env_vars::NO_COLOR).is_none()
    }

    /// Text in a subdued colour, if there are colours.
    pub(crate) fn dimmed(self, text: &str) -> String {
        if !text.is_empty() && self.is_coloured() { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
    }
}
