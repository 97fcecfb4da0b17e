//! Where conversations are kept between answers and between runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::size::{duration, size};
use crate::env_vars;
use crate::exit_code::Usage;
use crate::machine::machine_memory;

/// Most bytes of states in memory, unless more are asked for.
const MOST_MEMORY: u64 = 8 << 30;
/// Bytes of states in memory where the machine does not say how much it has.
const UNKNOWN_MACHINE: u64 = 2 << 30;

/// Flags of the commands that keep conversations.
#[derive(Args, Debug)]
pub(crate) struct SessionFlags {
    /// Folder in which conversations outlive the program [default: ~/.local/state/ds4server/sessions]
    #[arg(long, value_name = "DIR", help_heading = "Sessions")]
    session_dir: Option<PathBuf>,

    /// Most bytes of conversations on disk, such as 500MB or 16GiB; 0 keeps none there
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "16GiB", help_heading = "Sessions")]
    session_disk: u64,

    /// Most bytes of conversations in memory; 0 keeps none there [default: a quarter of the memory, at most 8GiB]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Sessions")]
    session_memory: Option<u64>,

    /// Keep nothing: every prompt is read from its start
    #[arg(long, help_heading = "Sessions")]
    #[arg(conflicts_with_all = ["session_dir", "session_disk", "session_memory"])]
    no_sessions: bool,
}

/// What the flags mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionSettings {
    /// Bytes of states in memory; 0 for none.
    pub(crate) memory_bytes: u64,
    /// The folder and the bytes that it may have; `None` for no disk.
    pub(crate) disk: Option<(PathBuf, u64)>,
}

impl SessionFlags {
    /// Resolves the defaults that depend on the machine. Without a home folder there is no default folder, and nothing is
    /// kept on disk.
    pub(crate) fn settings(self) -> SessionSettings {
        if self.no_sessions {
            return SessionSettings::default();
        }
        let memory = || machine_memory().map_or(UNKNOWN_MACHINE, |bytes| (bytes / 4).min(MOST_MEMORY));
        let folder = self.session_dir.or_else(default_folder).filter(|_| self.session_disk > 0);
        SessionSettings {
            memory_bytes: self.session_memory.unwrap_or_else(memory),
            disk: folder.map(|folder| (folder, self.session_disk)),
        }
    }
}

/// Where conversations are kept if the user does not say.
fn default_folder() -> Option<PathBuf> {
    Some(env_vars::state_folder()?.join("sessions"))
}

const EXAMPLES: &str = "\
A list can be read while a server runs. What a running server uses is removed through the server:
DELETE /v1/sessions/ID.

Examples:
  ds4server sessions list
  ds4server sessions show chat-68f1c2d07a31
  ds4server sessions prune --older-than 7d";

/// Show and remove conversations that are kept on disk.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SessionsFlags {
    #[command(subcommand)]
    pub(crate) action: SessionsAction,

    /// Folder of the conversations [default: ~/.local/state/ds4server/sessions]
    #[arg(long, value_name = "DIR", global = true)]
    session_dir: Option<PathBuf>,

    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What to do with them.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SessionsAction {
    /// List all, the last used first
    List,
    /// Show one
    Show {
        /// Its name, as in the list
        id: String,
    },
    /// Remove one
    Rm {
        /// Its name, as in the list
        id: String,
    },
    /// Remove those that were not used for some time
    Prune {
        /// How long ago, such as 12h, 30d or 8w
        #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30d")]
        older_than: Duration,

        /// Remove all
        #[arg(long, conflicts_with = "older_than")]
        all: bool,
    },
}

impl SessionsFlags {
    /// The folder that the flags mean.
    pub(crate) fn folder(&self) -> anyhow::Result<PathBuf> {
        let missing =
            || Usage("there is no home folder: name the sessions' folder with --session-dir".into());
        Ok(self.session_dir.clone().or_else(default_folder).ok_or_else(missing)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(session_disk: u64, no_sessions: bool) -> SessionSettings {
        let session_dir = Some("talks".into());
        SessionFlags { session_dir, session_disk, session_memory: Some(7), no_sessions }.settings()
    }

    #[test]
    fn no_disk_and_no_sessions_are_two_things() {
        assert_eq!(flags(5, false), SessionSettings { memory_bytes: 7, disk: Some(("talks".into(), 5)) });
        assert_eq!(flags(0, false), SessionSettings { memory_bytes: 7, disk: None });
        assert_eq!(flags(5, true), SessionSettings::default());
    }
}
