//! The `quantization` entry of config.json, by which MLX and this server recognise a quantised checkpoint.

use ds4_dtype::AffineLayout;
use serde_json::{Map, Value, json};

use super::QuantizeError;
use crate::ModelFiles;

/// Name of the model's description.
pub(crate) const CONFIG_FILE: &str = "config.json";
/// MLX reads the first; transformers and several servers look at the second.
const ENTRIES: [&str; 2] = ["quantization", "quantization_config"];

/// Formats of small floats that are decoded, as `quant_method` names them.
const DECODED: [&str; 4] = ["fp8", "fp4", "mxfp4", "nvfp4"];
/// Says how experts are stored, which changes.
const EXPERT_TYPE: &str = "expert_dtype";

/// The source's config.json with the quantisation entered.
pub(crate) fn quantized_config(files: &ModelFiles, layout: AffineLayout) -> Result<Vec<u8>, QuantizeError> {
    let model = files.name();
    let Some(text) = files.read(CONFIG_FILE)? else {
        return Err(QuantizeError::NoConfig { model });
    };
    let mut config: Map<String, Value> = match serde_json::from_slice(&text) {
        Ok(config) => config,
        Err(error) => return Err(QuantizeError::BadConfig { model, message: error.to_string() }),
    };
    for entry in ENTRIES {
        let method = config.get(entry).map(|source| source["quant_method"].as_str().unwrap_or_default());
        if method.is_some_and(|method| !DECODED.contains(&method)) {
            return Err(QuantizeError::AlreadyQuantized {
                model,
                evidence: format!("`{entry}` in config.json"),
            });
        }
    }
    config.remove(EXPERT_TYPE);
    for entry in ENTRIES {
        let value = json!({ "group_size": layout.group(), "bits": layout.bits(), "mode": "affine" });
        config.insert(entry.to_owned(), value);
    }
    Ok(format!("{:#}\n", Value::Object(config)).into_bytes())
}
