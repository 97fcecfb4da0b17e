//! Progress bars over bytes. They are drawn on standard error, and only if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that disappears when it is dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar for work called `what`; one that is `hidden` draws nothing.
    pub(crate) fn new(what: &'static str, hidden: bool) -> Self {
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        let template = "{prefix} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left {wide_msg}";
        // The template is fixed and a test parses it; the default bar would do as well.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        bar.set_prefix(what);
        Self(bar)
    }

    /// Shows that `done` of `total` bytes are done.
    pub(crate) fn set(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    /// Shows what is being worked on.
    pub(crate) fn note(&self, text: &str) {
        if self.0.message() != text {
            self.0.set_message(text.to_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
