//! What a model family adds where a checkpoint's files are silent: thinking levels, sampling defaults, the built-in chat
//! template. How each template looks is decided in `builtin`.

use super::builtin::{self, Conversation};
use super::thinking::ThinkingLevel;
use crate::{GenerationDefaults, TextError};

/// Think Max asks for more reasoning than fits into less: DeepSeek recommends it from 384 Ki tokens of context on.
const LEAST_CONTEXT_OF_MAX: usize = 384 << 10;

/// A model family, as far as text is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatFamily {
    /// Qwen3.8 Flash Next.
    Qwen,
    /// DeepSeek V4 Flash.
    DeepSeek,
    /// GLM 5.3 Flash.
    Glm,
}

impl ChatFamily {
    /// The family of a `model_type` in config.json.
    pub fn from_model_type(model_type: &str) -> Option<Self> {
        match model_type {
            "qwen4_exp" | "qwen4_exp_text" => Some(Self::Qwen),
            "deepseek_v4" => Some(Self::DeepSeek),
            "glm5_next" | "glm5_next_text" => Some(Self::Glm),
            _ => None,
        }
    }

    /// What the family recommends for sampling where generation_config.json is silent: the defaults of MTPLX for Qwen, of
    /// ds4 for DeepSeek and GLM.
    pub fn generation_defaults(self) -> GenerationDefaults {
        let (top_p, top_k, min_p) = match self {
            Self::Qwen => (0.95, 20, 0.0),
            Self::DeepSeek => (1.0, 0, 0.05),
            Self::Glm => (0.95, 0, 0.0),
        };
        GenerationDefaults { temperature: 1.0, top_p, top_k, min_p, max_new_tokens: None }
    }

    /// The family's own level for any level that can be asked for, in a context of so many tokens.
    pub(crate) fn own_level(self, level: ThinkingLevel, context: usize) -> ThinkingLevel {
        use ThinkingLevel::{High, Low, Max, Medium, Xhigh};
        match (self, level) {
            (Self::Qwen, Low | Medium) => level,
            (Self::Qwen, High | Xhigh | Max) => Xhigh,
            (Self::DeepSeek, Max) if context < LEAST_CONTEXT_OF_MAX => High,
            (Self::DeepSeek | Self::Glm, Max) => Max,
            (Self::DeepSeek | Self::Glm, Low | Medium | High | Xhigh) => High,
        }
    }

    /// The level of the built-in template for requests that name none.
    pub(crate) fn default_level(self) -> ThinkingLevel {
        match self {
            Self::Qwen => ThinkingLevel::Xhigh,
            Self::DeepSeek | Self::Glm => ThinkingLevel::High,
        }
    }

    /// The tokens without which the built-in template means nothing.
    pub(crate) fn markers(self) -> &'static [&'static str] {
        match self {
            Self::Qwen => builtin::qwen::MARKERS,
            Self::DeepSeek => builtin::deepseek::MARKERS,
            Self::Glm => builtin::glm::MARKERS,
        }
    }

    /// Renders a conversation with the built-in template.
    pub(crate) fn render(self, conversation: &Conversation<'_>) -> Result<String, TextError> {
        match self {
            Self::Qwen => builtin::qwen::render(conversation),
            Self::DeepSeek => builtin::deepseek::render(conversation),
            Self::Glm => builtin::glm::render(conversation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_has_its_nearest_in_every_family() {
        use ThinkingLevel::{High, Low, Max, Medium, Xhigh};
        let own = |family: ChatFamily, context| {
            [Low, Medium, High, Xhigh, Max].map(|level| family.own_level(level, context))
        };
        assert_eq!(own(ChatFamily::Qwen, 4096), [Low, Medium, Xhigh, Xhigh, Xhigh]);
        assert_eq!(own(ChatFamily::DeepSeek, 393_215), [High, High, High, High, High]);
        assert_eq!(own(ChatFamily::DeepSeek, 393_216), [High, High, High, High, Max]);
        assert_eq!(own(ChatFamily::Glm, 4096), [High, High, High, High, Max]);
    }

    #[test]
    fn defaults_are_those_of_the_references() {
        let sampling = |family: ChatFamily| {
            let defaults = family.generation_defaults();
            (defaults.temperature, defaults.top_p, defaults.top_k, defaults.min_p)
        };
        assert_eq!(sampling(ChatFamily::Qwen), (1.0, 0.95, 20, 0.0));
        assert_eq!(sampling(ChatFamily::DeepSeek), (1.0, 1.0, 0, 0.05));
        assert_eq!(sampling(ChatFamily::Glm), (1.0, 0.95, 0, 0.0));
    }
}
