//! From `model_type` to a family.

use ds4_weights::{Checkpoint, ModelFiles};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Description, LoadOptions, LoadedModel, ModelError, deepseek_v4, glm5_next, qwen4_exp};

/// The values of `model_type` that can be loaded.
pub const FAMILIES: &[&str] = &["qwen4_exp", "qwen4_exp_text", "deepseek_v4", "glm5_next", "glm5_next_text"];

/// Loads a model of any family.
pub fn load(files: &ModelFiles, options: &LoadOptions) -> Result<LoadedModel, ModelError> {
    let config = read_config(files)?;
    match family(files, &config)? {
        "qwen4_exp" | "qwen4_exp_text" => qwen4_exp::load(files, config, options),
        "deepseek_v4" => deepseek_v4::load(files, config, options),
        "glm5_next" | "glm5_next_text" => glm5_next::load(files, config, options),
        other => Err(ModelError::UnknownFamily { model_type: other.to_owned() }),
    }
}

/// Says what a model is and needs, without loading it.
pub fn describe(files: &ModelFiles) -> Result<Description, ModelError> {
    let config = read_config(files)?;
    match family(files, &config)? {
        "qwen4_exp" | "qwen4_exp_text" => qwen4_exp::describe(&Checkpoint::load(files)?, files, config),
        "deepseek_v4" => deepseek_v4::describe(&Checkpoint::load(files)?, files, config),
        "glm5_next" | "glm5_next_text" => glm5_next::describe(&Checkpoint::load(files)?, files, config),
        other => Err(ModelError::UnknownFamily { model_type: other.to_owned() }),
    }
}

fn family<'a>(files: &ModelFiles, config: &'a Value) -> Result<&'a str, ModelError> {
    config["model_type"].as_str().ok_or_else(|| ModelError::NoModelType { model: files.name() })
}

fn read_config(files: &ModelFiles) -> Result<Value, ModelError> {
    let bytes = files.read("config.json")?.ok_or_else(|| ModelError::NoConfig { model: files.name() })?;
    serde_json::from_slice(&bytes).map_err(|source| ModelError::Config { model: files.name(), source })
}

/// The text part of a family's `config.json`.
pub(crate) trait FamilyConfig: DeserializeOwned {
    /// Checks what the arithmetic relies on.
    fn validate(&self) -> Result<(), ModelError>;
}

/// `model_type`, and the text part of a configuration as a family's struct, checked: `text_config` if there is one, else
/// the whole.
pub(crate) fn family_config<T: FamilyConfig>(
    files: &ModelFiles,
    config: Value,
) -> Result<(String, T), ModelError> {
    let model_type = family(files, &config)?.to_owned();
    let text = match config {
        Value::Object(mut whole) => match whole.remove("text_config") {
            Some(text @ Value::Object(_)) => inherit(text, &whole),
            _ => Value::Object(whole),
        },
        other => other,
    };
    let config: T = serde_path_to_error::deserialize(text).map_err(|error| {
        let field = match error.path().to_string().as_str() {
            // A missing field is named by the message.
            "." => "text part".to_owned(),
            field => field.to_owned(),
        };
        ModelError::ConfigField { model: files.name(), field, source: error.into_inner() }
    })?;
    config.validate()?;
    Ok((model_type, config))
}

/// What some checkpoints say at the top level only.
fn inherit(mut text: Value, whole: &serde_json::Map<String, Value>) -> Value {
    for field in ["tie_word_embeddings", "eos_token_id"] {
        if text.get(field).is_none_or(Value::is_null)
            && let Some(value) = whole.get(field)
        {
            text[field] = value.clone();
        }
    }
    text
}
