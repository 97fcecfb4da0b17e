//! Shows an answer in the terminal as it comes: the answer on standard output, what the model thinks on standard error.

use std::io;

use ds4_text::TextDelta;

use crate::answer::Piece;
use crate::output::Stream;

/// Where reasoning goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reasoning {
    /// Nowhere.
    Hidden,
    /// Dimmed to standard error.
    Aside,
    /// To standard output, between `<think>` and `</think>`.
    Inline,
}

impl Reasoning {
    /// What `--show-thinking` and `--quiet` mean together.
    pub(crate) fn of(show_thinking: bool, quiet: bool) -> Self {
        match (show_thinking, quiet) {
            (true, _) => Self::Inline,
            (false, true) => Self::Hidden,
            (false, false) => Self::Aside,
        }
    }
}

/// Prints one answer and remembers it.
pub(crate) struct Printer {
    reasoning: Reasoning,
    /// A terminal shows how much of the prompt has been read.
    waiting: bool,
    /// In the middle of reasoning that is shown.
    thinking: bool,
    /// The answer so far.
    content: String,
    /// The reasoning so far.
    thought: String,
}

impl Printer {
    pub(crate) fn new(reasoning: Reasoning) -> Self {
        Self { reasoning, waiting: false, thinking: false, content: String::new(), thought: String::new() }
    }

    /// Shows a piece.
    pub(crate) fn show(&mut self, piece: Piece) -> io::Result<()> {
        self.end_waiting()?;
        match piece {
            Piece::Prefill { done, total } => self.wait(done, total),
            Piece::Text(TextDelta::Reasoning(text)) => {
                self.thought.push_str(&text);
                self.think(&text)
            }
            Piece::Text(TextDelta::Content(text)) => {
                self.end_thinking()?;
                self.content.push_str(&text);
                Stream::Out.write(&text)
            }
            // No tools are offered, so none are called: calls that the model makes up are content.
            Piece::Text(TextDelta::ToolCall(_)) => Ok(()),
        }
    }

    /// Ends the last line. Returns the answer and the reasoning.
    pub(crate) fn finish(mut self) -> io::Result<(String, String)> {
        self.end_waiting()?;
        self.end_thinking()?;
        if !self.content.is_empty() && !self.content.ends_with('\n') {
            Stream::Out.write("\n")?;
        }
        Ok((self.content, self.thought))
    }

    /// A long prompt takes a while, and a terminal that shows nothing looks dead.
    fn wait(&mut self, done: usize, total: usize) -> io::Result<()> {
        let stream = Stream::Err;
        if done == total || self.reasoning == Reasoning::Hidden || !stream.is_terminal() {
            return Ok(());
        }
        self.waiting = true;
        stream.write(&stream.dimmed(&format!("reading the prompt: {done} of {total} tokens")))
    }

    fn end_waiting(&mut self) -> io::Result<()> {
        // To the start of the line, and clear it.
        if std::mem::take(&mut self.waiting) { Stream::Err.write("\r\x1b[K") } else { Ok(()) }
    }

    fn think(&mut self, text: &str) -> io::Result<()> {
        let Some(stream) = self.stream() else { return Ok(()) };
        if !self.thinking && self.reasoning == Reasoning::Inline {
            stream.write(&stream.dimmed("<think>\n"))?;
        }
        self.thinking = true;
        stream.write(&stream.dimmed(text))
    }

    fn end_thinking(&mut self) -> io::Result<()> {
        let Some(stream) = self.stream().filter(|_| std::mem::take(&mut self.thinking)) else {
            return Ok(());
        };
        match self.reasoning {
            Reasoning::Inline => stream.write(&stream.dimmed("\n</think>\n\n")),
            Reasoning::Hidden | Reasoning::Aside => stream.write("\n\n"),
        }
    }

    fn stream(&self) -> Option<Stream> {
        match self.reasoning {
            Reasoning::Hidden => None,
            Reasoning::Aside => Some(Stream::Err),
            Reasoning::Inline => Some(Stream::Out),
        }
    }
}
