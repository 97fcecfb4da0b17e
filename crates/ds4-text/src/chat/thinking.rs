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

/// The levels that can be asked for. Each family knows some of them and takes the nearest of its own for the others:
///
/// | family | own levels | low | medium | high | xhigh | max |
/// |---|---|---|---|---|---|---|
/// | Qwen3.8 Flash Next | low, medium, xhigh | low | medium | xhigh | xhigh | xhigh |
/// | DeepSeek V4 Flash | high, max | high | high | high | high | max from 393,216 tokens of context on, else high |
/// | GLM 5.3 Flash | high, max | high | high | high | high | max |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkingLevel {
    /// Briefly.
    Low,
    /// Moderately.
    Medium,
    /// Thoroughly.
    High,
    /// Very thoroughly.
    Xhigh,
    /// As long as it takes.
    Max,
}

impl ThinkingLevel {
    /// The words for them, lowest level first.
    pub const NAMES: [&'static str; 5] = ["low", "medium", "high", "xhigh", "max"];

    /// The word for it; templates are given it as `reasoning_effort`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

impl FromStr for Thinking {
    type Err = TextError;

    /// Reads a word in any case:
    ///
    /// | word | meaning |
    /// |---|---|
    /// | `off`, `none`, `disable`, `disabled` | off |
    /// | `on`, `default`, `enabled` | on, level left to the template |
    /// | `low`, `minimal` | low |
    /// | `medium`, `high`, `xhigh`, `max` | the level of that name |
    fn from_str(word: &str) -> Result<Self, TextError> {
        Ok(match word.trim().to_ascii_lowercase().as_str() {
            "off" | "none" | "disable" | "disabled" => Self::Off,
            "on" | "default" | "enabled" => Self::On,
            "low" | "minimal" => Self::Level(ThinkingLevel::Low),
            "medium" => Self::Level(ThinkingLevel::Medium),
            "high" => Self::Level(ThinkingLevel::High),
            "xhigh" => Self::Level(ThinkingLevel::Xhigh),
            "max" => Self::Level(ThinkingLevel::Max),
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
            (Thinking::Level(ThinkingLevel::High), "high"),
            (Thinking::Level(ThinkingLevel::Xhigh), "xhigh"),
            (Thinking::Level(ThinkingLevel::Max), "max"),
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
        assert_eq!(
            message,
            "unknown thinking level \"extreme\": valid are off, on, low, medium, high, xhigh, max"
        );
        assert!("".parse::<Thinking>().is_err());
    }
}
