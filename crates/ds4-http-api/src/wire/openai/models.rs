//! The list of models, which has one entry.

use serde::Serialize;

/// One model.
#[derive(Debug, Serialize)]
pub(crate) struct Model {
    pub(crate) id: String,
    pub(crate) object: &'static str,
    /// Unix seconds when it was loaded.
    pub(crate) created: u64,
    pub(crate) owned_by: &'static str,
    /// Not OpenAI's: most tokens of prompt and answer together.
    pub(crate) context_length: usize,
}

/// All models.
#[derive(Debug, Serialize)]
pub(crate) struct ModelList {
    pub(crate) object: &'static str,
    pub(crate) data: Vec<Model>,
}
