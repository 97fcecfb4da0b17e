//! Every environment variable that the program reads. Flags win over them.

use std::path::PathBuf;

/// The model to use where `--model` is not given.
pub(crate) const MODEL: &str = "DS4_MODEL";
/// The key that `serve` asks of its clients where `--api-key` is not given.
pub(crate) const API_KEY: &str = "DS4_API_KEY";
/// What `serve` logs where `--log` is not given.
pub(crate) const LOG: &str = "DS4_LOG";
/// If set and not empty, nothing is coloured or dimmed (see no-color.org).
pub(crate) const NO_COLOR: &str = "NO_COLOR";
/// Where the history of `chat` and the sessions are kept, as the XDG base directory specification has it.
pub(crate) const STATE_HOME: &str = "XDG_STATE_HOME";
/// The home folder, for these where `XDG_STATE_HOME` is not set.
pub(crate) const HOME: &str = "HOME";

/// What `--help` says of them.
pub(crate) const HELP: &str = "\
Environment:
  DS4_MODEL       model to use where --model is not given
  DS4_API_KEY     key that serve asks of its clients where --api-key is not given
  DS4_LOG         what serve logs where --log is not given
  NO_COLOR        if set, nothing is coloured or dimmed
  XDG_STATE_HOME  where sessions and the history of chat are kept, default ~/.local/state";

/// The value of a variable, if it is set and not empty.
pub(crate) fn get(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The program's own folder for what it keeps between runs. `None` if there is no home.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let state = get(STATE_HOME).map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(get(HOME)?).join(".local/state")))?;
    Some(state.join("ds4server"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_variable() {
        for name in [MODEL, API_KEY, LOG, NO_COLOR, STATE_HOME] {
            assert!(HELP.contains(&format!("\n  {name} ")), "{name}");
        }
    }
}
