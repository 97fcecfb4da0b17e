//! Why a model cannot be loaded or run.

use ds4_array::ArrayError;
use ds4_layers::{CacheError, LayerError, ParamError};
use ds4_weights::WeightsError;

/// An error of a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The folder has no configuration.
    #[error("{model} has no config.json: a Hugging Face checkpoint folder is needed")]
    NoConfig {
        /// Name of the model or folder.
        model: String,
    },
    /// The configuration does not say what kind of model it is.
    #[error("config.json of {model} has no model_type; supported are {}", crate::FAMILIES.join(", "))]
    NoModelType {
        /// Name of the model or folder.
        model: String,
    },
    /// The configuration lacks a field, or has one of a wrong type.
    #[error("config.json of {model}, {field}: {source}")]
    ConfigField {
        /// Name of the model or folder.
        model: String,
        /// Path of the field; of what should have the field, if it is missing.
        field: String,
        /// Parser's message.
        source: serde_json::Error,
    },
    /// The configuration is not valid JSON.
    #[error("config.json of {model}: {source}")]
    Config {
        /// Name of the model or folder.
        model: String,
        /// Parser's message, with line and column.
        source: serde_json::Error,
    },
    /// A field has a value that the family does not allow.
    #[error("config.json: {field} is {actual}, but must be {expected}")]
    ConfigValue {
        /// Name of the field.
        field: &'static str,
        /// What would be right.
        expected: String,
        /// What is there.
        actual: String,
    },
    /// A list does not go with the number of layers.
    #[error(
        "config.json: {field} has {entries} entr{}, but num_hidden_layers is {layers}",
        if *entries == 1 { "y" } else { "ies" }
    )]
    ConfigEntries {
        /// Name of the list.
        field: &'static str,
        /// Its length.
        entries: usize,
        /// The number of layers.
        layers: usize,
    },
    /// Another family.
    #[error("model_type {model_type:?} is not supported; supported are {}", crate::FAMILIES.join(", "))]
    UnknownFamily {
        /// As in config.json.
        model_type: String,
    },
    /// A file is damaged.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Tensors do not fit the configuration.
    #[error(transparent)]
    Params(#[from] ParamError),
    /// A layer failed.
    #[error(transparent)]
    Layer(#[from] LayerError),
}

impl From<ArrayError> for ModelError {
    fn from(error: ArrayError) -> Self {
        Self::Layer(error.into())
    }
}

impl From<CacheError> for ModelError {
    fn from(error: CacheError) -> Self {
        Self::Layer(error.into())
    }
}
