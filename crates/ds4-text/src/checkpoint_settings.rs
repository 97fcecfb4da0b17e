//! What the small JSON files of a checkpoint say about text: stop tokens, sampling defaults, the chat template and
//! the names of special tokens. Values come from the files only; no id is ever guessed.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::unapplied::{self, UnappliedSetting};
use crate::{SpecialTokens, TextError};

const GENERATION: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer_config.json";

/// Sampling settings to use where a request gives none.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationDefaults {
    /// 0 means the most probable token.
    pub temperature: f64,
    /// Mass of the most probable tokens that stay.
    pub top_p: f64,
    /// How many of the most probable tokens stay; 0 means all.
    pub top_k: usize,
    /// Least share of the most probable token's probability.
    pub min_p: f64,
    /// Longest answer in tokens, if the checkpoint names one.
    pub max_new_tokens: Option<usize>,
}

/// What is read from `generation_config.json`.
pub(crate) struct GenerationConfig {
    pub(crate) defaults: GenerationDefaults,
    pub(crate) eos: Vec<u32>,
    pub(crate) unapplied: Vec<UnappliedSetting>,
}

#[derive(Deserialize)]
struct RawGenerationConfig {
    do_sample: Option<bool>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<usize>,
    min_p: Option<f64>,
    max_new_tokens: Option<usize>,
    eos_token_id: Option<OneOrMany>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

impl GenerationConfig {
    /// Reads the file; `family` counts where it is silent.
    pub(crate) fn parse(json: &[u8], family: GenerationDefaults) -> Result<Self, TextError> {
        let raw: RawGenerationConfig = parse(GENERATION, json)?;
        let temperature = match raw.do_sample {
            Some(false) => 0.0,
            _ => raw.temperature.unwrap_or(family.temperature),
        };
        let defaults = GenerationDefaults {
            temperature: in_range("temperature", temperature, 0.0..=f64::MAX, "a number from 0 on")?,
            top_p: in_range("top_p", raw.top_p.unwrap_or(family.top_p), 0.0..=1.0, "a number from 0 to 1")?,
            top_k: raw.top_k.unwrap_or(family.top_k),
            min_p: in_range("min_p", raw.min_p.unwrap_or(family.min_p), 0.0..=1.0, "a number from 0 to 1")?,
            max_new_tokens: raw.max_new_tokens.or(family.max_new_tokens),
        };
        let eos = match raw.eos_token_id {
            None => Vec::new(),
            Some(OneOrMany::One(id)) => vec![id],
            Some(OneOrMany::Many(ids)) => ids,
        };
        Ok(Self { defaults, eos, unapplied: unapplied::find(&raw.others) })
    }
}

fn in_range(
    field: &'static str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    expected: &'static str,
) -> Result<f64, TextError> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(TextError::InvalidSetting { file: GENERATION, field, value: value.to_string(), expected })
}

/// What is read from `tokenizer_config.json`.
#[derive(Default)]
pub(crate) struct TokenizerConfig {
    pub(crate) special_tokens: SpecialTokens,
    pub(crate) chat_template: Option<String>,
}

impl TokenizerConfig {
    pub(crate) fn parse(json: &[u8]) -> Result<Self, TextError> {
        let config: Value = parse(TOKENIZER, json)?;
        let mut special_tokens = SpecialTokens::new();
        for name in ["bos_token", "eos_token", "pad_token", "unk_token"] {
            // Either the text or an object that holds it.
            let token = &config[name];
            if let Some(text) = token.as_str().or_else(|| token["content"].as_str()) {
                special_tokens.push((name, text.to_string()));
            }
        }
        Ok(Self { special_tokens, chat_template: chat_template(&config["chat_template"])? })
    }

    pub(crate) fn eos_token(&self) -> Option<&str> {
        self.special_tokens.iter().find(|(name, _)| *name == "eos_token").map(|(_, text)| text.as_str())
    }
}

/// A template, or a list of named ones of which `default` counts.
fn chat_template(value: &Value) -> Result<Option<String>, TextError> {
    match value {
        Value::Null => Ok(None),
        Value::String(template) => Ok(Some(template.clone())),
        Value::Array(templates) => Ok(templates
            .iter()
            .find(|entry| entry["name"] == "default")
            .and_then(|entry| entry["template"].as_str())
            .map(str::to_string)),
        other => Err(TextError::InvalidSetting {
            file: TOKENIZER,
            field: "chat_template",
            value: other.to_string(),
            expected: "a string or a list of {\"name\", \"template\"}",
        }),
    }
}

fn parse<T: serde::de::DeserializeOwned>(file: &'static str, json: &[u8]) -> Result<T, TextError> {
    serde_json::from_slice(json).map_err(|source| TextError::InvalidJson { file, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChatFamily;

    fn generation(json: &[u8]) -> Result<GenerationConfig, TextError> {
        GenerationConfig::parse(json, ChatFamily::DeepSeek.generation_defaults())
    }

    #[test]
    fn absent_fields_take_the_family_defaults() {
        let config = generation(b"{\"top_p\": 0.8, \"eos_token_id\": 7}").unwrap();
        let family = ChatFamily::DeepSeek.generation_defaults();
        assert_eq!(config.defaults, GenerationDefaults { top_p: 0.8, ..family });
        assert_eq!(config.eos, [7]);
    }

    #[test]
    fn greedy_checkpoints_have_temperature_zero() {
        let config = generation(b"{\"do_sample\": false, \"temperature\": 0.6}").unwrap();
        assert_eq!(config.defaults.temperature, 0.0);
    }

    #[test]
    fn values_out_of_range_are_named() {
        let error = generation(b"{\"top_p\": 1.5}").err().unwrap().to_string();
        assert_eq!(error, "generation_config.json: \"top_p\" is 1.5, expected a number from 0 to 1");
        assert!(matches!(generation(b"{"), Err(TextError::InvalidJson { file: GENERATION, .. })));
    }

    #[test]
    fn special_tokens_and_templates_come_in_two_shapes() {
        let config = TokenizerConfig::parse(
            br#"{"eos_token": {"content": "<e>"}, "bos_token": "<b>", "pad_token": null,
                 "chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]}"#,
        )
        .unwrap();
        assert_eq!(config.eos_token(), Some("<e>"));
        assert_eq!(
            config.special_tokens,
            [("bos_token", "<b>".to_string()), ("eos_token", "<e>".to_string())]
        );
        assert_eq!(config.chat_template.as_deref(), Some("d"));
        assert!(matches!(
            TokenizerConfig::parse(b"{\"chat_template\": 3}"),
            Err(TextError::InvalidSetting { .. })
        ));
    }
}
