//! What a line of a conversation asks for: a message to the model, or a command with a slash.

use std::path::PathBuf;

use ds4_text::Thinking;

use crate::exit_code::Usage;

/// What `/help` prints.
pub(super) const HELP: &str = "\
/system [TEXT]     set the instructions and start anew; without TEXT, remove them
/think [LEVEL]     think before answering: off, on, low, medium, high, xhigh or max; without LEVEL, on
/nothink           answer at once
/regenerate        answer the last message again
/compact           put a summary in the place of all but the last turn
/stats             figures of the last answer and the conversation
/save FILE         write the conversation and its settings as JSON
/load FILE         go on with a conversation that was saved
/quit              end, as does Ctrl-D
A line that ends with \\ goes on. A message that begins with a slash is typed with two.
";

/// A line, understood.
#[derive(Debug, PartialEq)]
pub(super) enum Command {
    Message(String),
    Help,
    System(Option<String>),
    Think(Thinking),
    Regenerate,
    Compact,
    Stats,
    Save(PathBuf),
    Load(PathBuf),
    Quit,
}

impl Command {
    /// Reads a line.
    pub(super) fn parse(line: &str) -> anyhow::Result<Self> {
        let Some(command) = line.strip_prefix('/') else { return Ok(Self::Message(line.to_owned())) };
        if command.starts_with('/') {
            return Ok(Self::Message(command.to_owned()));
        }
        let (name, argument) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let argument = Some(argument.trim()).filter(|argument| !argument.is_empty());
        let file = || {
            let missing = || Usage(format!("/{name} needs the name of a file"));
            argument.map(PathBuf::from).ok_or_else(missing)
        };
        let alone = |command| match argument {
            None => Ok(command),
            Some(argument) => Err(Usage(format!("/{name} stands alone, without {argument:?}"))),
        };
        Ok(match name {
            "help" => alone(Self::Help)?,
            "system" => Self::System(argument.map(str::to_owned)),
            "think" => Self::Think(argument.map_or(Ok(Thinking::On), str::parse)?),
            "nothink" => alone(Self::Think(Thinking::Off))?,
            "regenerate" => alone(Self::Regenerate)?,
            "compact" => alone(Self::Compact)?,
            "stats" => alone(Self::Stats)?,
            "save" => Self::Save(file()?),
            "load" => Self::Load(file()?),
            "quit" => alone(Self::Quit)?,
            _ => return Err(Usage(format!("there is no command /{name}; /help lists them")).into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Command {
        Command::parse(line).unwrap()
    }

    fn error(line: &str) -> String {
        Command::parse(line).unwrap_err().to_string()
    }

    #[test]
    fn commands_begin_with_a_slash() {
        assert_eq!(parse("hello /quit"), Command::Message("hello /quit".into()));
        assert_eq!(parse("//quit"), Command::Message("/quit".into()));
        assert_eq!(parse("/system  Be brief. "), Command::System(Some("Be brief.".into())));
        assert_eq!(parse("/system"), Command::System(None));
        assert_eq!(parse("/save my talk.json"), Command::Save("my talk.json".into()));
        assert_eq!(parse("/think"), Command::Think(Thinking::On));
        assert_eq!(parse("/nothink"), Command::Think(Thinking::Off));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(error("/exit"), "there is no command /exit; /help lists them");
        assert_eq!(error("/load"), "/load needs the name of a file");
        assert_eq!(error("/quit now"), "/quit stands alone, without \"now\"");
        assert!(error("/think hard").contains("valid are off, on, low, medium, high, xhigh, max"));
    }

    #[test]
    fn the_help_names_every_command() {
        for name in ["system", "think", "nothink", "regenerate", "compact", "stats", "save", "load", "quit"] {
            assert!(HELP.lines().any(|line| line.starts_with(&format!("/{name} "))), "{name}");
        }
    }
}
