//! Ctrl-C. While an answer runs it stops the answer; what it does otherwise, the command chooses.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ds4_engine_api::CancelToken;

use crate::exit_code;

/// What Ctrl-C does while no answer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenIdle {
    /// Ends the program.
    Exit,
    /// Nothing: the line editor sees the key.
    Ignore,
}

/// Watches for Ctrl-C until the program ends. Clones share the watch.
#[derive(Clone)]
pub(crate) struct Interrupts(Arc<Mutex<Option<CancelToken>>>);

impl Interrupts {
    /// Starts watching.
    pub(crate) fn watch(when_idle: WhenIdle) -> io::Result<Self> {
        let running = Self(Arc::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let seen = running.clone();
        std::thread::Builder::new().name("ctrl-c".into()).spawn(move || {
            runtime.block_on(async {
                while tokio::signal::ctrl_c().await.is_ok() {
                    // Taken, so that a second Ctrl-C ends a program whose first one has no effect.
                    match (seen.running().take(), when_idle) {
                        (Some(token), _) => token.cancel(),
                        (None, WhenIdle::Exit) => std::process::exit(exit_code::INTERRUPTED.into()),
                        (None, WhenIdle::Ignore) => {}
                    }
                }
            });
        })?;
        Ok(running)
    }

    /// Makes Ctrl-C stop this answer, until the guard is dropped.
    pub(crate) fn stops(&self, token: &CancelToken) -> Stopping<'_> {
        *self.running() = Some(token.clone());
        Stopping(self)
    }

    fn running(&self) -> MutexGuard<'_, Option<CancelToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While it lives, Ctrl-C stops an answer.
pub(crate) struct Stopping<'a>(&'a Interrupts);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        *self.0.running() = None;
    }
}
