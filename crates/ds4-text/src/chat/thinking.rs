//! Whether and how hard the model thinks, and the words that people and other vendors use for it.

use std::str::FromStr;

use crate::TextError;

/// Whether and how hard the model thinks before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// As the template decides when it is told nothing.
    #[default]
    Default,
    /// Answer at once.
    Off,
    /// Think, at the template's own level.
    On,
    /// Think at this level.
    Level(ThinkingLevel),
}

/// The levels of the Qwen family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkingLevel {
    /// Briefly.
    Low,
    /// Moderately.
    Medium,
    /// As long as it takes.
    Xhigh,
}

impl ThinkingLevel {
    /// The words that the family's templates know, lowest level first.
    pub const NAMES: [&'static str; 3] = ["low", "medium", "xhigh"];

    /// The word that the template is given as `reasoning_effort`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::Xhigh => "xhigh",
        }
    }
}

impl FromStr for Thinking {
    type Err = TextError;

    /// Reads a word in any case. Beside the family's own levels, names of other vendors mean the nearest one:
    ///
    /// | word | meaning |
    /// |---|---|
    /// | `off`, `none`, `disable`, `disabled` | off |
    /// | `on`, `default`, `enabled` | on, level left to the template |
    /// | `low`, `minimal` | low |
    /// | `medium` | medium |
    /// | `xhigh`, `high`, `max` | xhigh |
    fn from_str(word: &str) -> Result<Self, TextError> {
        Ok(match word.trim().to_ascii_lowercase().as_str() {
            "off" | "none" | "disable" | "disabled" => Self::Off,
            "on" | "default" | "enabled" => Self::On,
            "low" | "minimal" => Self::Level(ThinkingLevel::Low),
            "medium" => Self::Level(ThinkingLevel::Medium),
            "xhigh" | "high" | "max" => Self::Level(ThinkingLevel::Xhigh),
            _ => return Err(TextError::UnknownThinkingLevel { word: word.to_string() }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_word_has_its_meaning() {
        let meanings = [
            (Thinking::Off, "off none disable disabled OFF"),
            (Thinking::On, "on default enabled"),
            (Thinking::Level(ThinkingLevel::Low), "low minimal"),
            (Thinking::Level(ThinkingLevel::Medium), "medium Medium"),
            (Thinking::Level(ThinkingLevel::Xhigh), "xhigh high max"),
        ];
        for (meaning, words) in meanings {
            for word in words.split(' ') {
                assert_eq!(word.parse::<Thinking>().unwrap(), meaning, "{word}");
            }
        }
    }

    #[test]
    fn an_unknown_word_names_the_valid_ones() {
        let message = "extreme".parse::<Thinking>().unwrap_err().to_string();
        assert_eq!(message, "unknown thinking level \"extreme\": valid are off, on, low, medium, xhigh");
        assert!("".parse::<Thinking>().is_err());
    }
}
