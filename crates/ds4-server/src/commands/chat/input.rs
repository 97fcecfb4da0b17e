//! Where the lines of a conversation come from: a person at a terminal, with editing and history, or a script.

use std::fs;
use std::io::{self, BufRead as _};
use std::path::PathBuf;

use anyhow::Context as _;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{Config, Editor};

use crate::env_vars;
use crate::output;

/// Lines of history that are kept.
const HISTORY_LINES: usize = 1000;

/// A source of lines.
pub(super) enum Input {
    /// A person.
    Terminal(Box<Terminal>),
    /// A pipe or a file: nothing is prompted for.
    Script,
}

pub(super) struct Terminal {
    editor: Editor<(), DefaultHistory>,
    /// Where the history is kept, if it is.
    history: Option<PathBuf>,
}

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A message or command, continued lines joined.
    Text(String),
    /// Ctrl-C or an empty line.
    Nothing,
    /// Ctrl-D or the end of the script.
    End,
}

impl Input {
    /// Lines from a person.
    pub(super) fn terminal(keep_history: bool) -> anyhow::Result<Self> {
        let config = Config::builder().max_history_size(HISTORY_LINES)?.history_ignore_dups(true)?.build();
        let mut editor = Editor::with_config(config).context("cannot use the terminal")?;
        let history = if keep_history { history_file() } else { None };
        if let Some(file) = &history {
            // It is not there the first time.
            let _ = editor.load_history(file);
        }
        Ok(Self::Terminal(Box::new(Terminal { editor, history })))
    }

    /// Lines from standard input as they are.
    pub(super) fn script() -> Self {
        Self::Script
    }

    /// The next message or command.
    pub(super) fn next(&mut self) -> anyhow::Result<Line> {
        match self {
            Self::Terminal(terminal) => terminal.next(),
            Self::Script => join(|_| {
                let mut line = String::new();
                let bytes = io::stdin().lock().read_line(&mut line).context("cannot read standard input")?;
                let line = line.strip_suffix('\n').unwrap_or(&line);
                Ok((bytes > 0).then(|| line.strip_suffix('\r').unwrap_or(line).to_owned()))
            }),
        }
    }
}

impl Terminal {
    fn next(&mut self) -> anyhow::Result<Line> {
        let line = join(|continued| match self.editor.readline(if continued { ". " } else { "> " }) {
            Ok(line) => Ok(Some(line)),
            Err(ReadlineError::Eof) => Ok(None),
            Err(error) => Err(error.into()),
        });
        match line {
            Ok(Line::Text(text)) => {
                self.remember(&text);
                Ok(Line::Text(text))
            }
            Err(error) if matches!(error.downcast_ref(), Some(ReadlineError::Interrupted)) => {
                Ok(Line::Nothing)
            }
            other => other,
        }
    }

    /// Keeps a line at once, so that nothing is lost if the program is ended from outside.
    fn remember(&mut self, text: &str) {
        let added = self.editor.add_history_entry(text).is_ok_and(|added| added);
        let Some(file) = self.history.as_ref().filter(|_| added) else { return };
        let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(error) =
            folder.map_err(ReadlineError::from).and_then(|()| self.editor.append_history(file))
        {
            output::stderr(&format!("note: cannot keep the history in {}: {error}\n", file.display()));
            self.history = None;
        }
    }
}

/// Reads lines until one does not end with a backslash, and joins them. `read` is told whether the line goes on from
/// another; `None` is the end of the input.
fn join(mut read: impl FnMut(bool) -> anyhow::Result<Option<String>>) -> anyhow::Result<Line> {
    let mut text = String::new();
    let mut continued = false;
    while let Some(line) = read(continued)? {
        match line.strip_suffix('\\') {
            Some(line) => {
                text.push_str(line);
                text.push('\n');
                continued = true;
            }
            None => {
                text.push_str(&line);
                return Ok(if text.trim().is_empty() { Line::Nothing } else { Line::Text(text) });
            }
        }
    }
    // What came before the end counts.
    Ok(if text.trim().is_empty() { Line::End } else { Line::Text(text) })
}

fn history_file() -> Option<PathBuf> {
    Some(env_vars::state_folder()?.join("history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(script: &[&str]) -> Vec<Line> {
        let mut script = script.iter();
        let mut next = || join(|_| Ok(script.next().map(|line| (*line).to_owned()))).unwrap();
        std::iter::from_fn(|| Some(next()).filter(|line| *line != Line::End)).collect()
    }

    #[test]
    fn a_backslash_continues_a_line() {
        assert_eq!(
            lines(&["one\\", "two", "three"]),
            [Line::Text("one\ntwo".into()), Line::Text("three".into())]
        );
    }

    #[test]
    fn the_end_ends_an_unfinished_line() {
        assert_eq!(lines(&["one\\"]), [Line::Text("one\n".into())]);
        assert_eq!(lines(&["", "  "]), [Line::Nothing, Line::Nothing]);
    }
}
