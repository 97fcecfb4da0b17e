//! Which weight files belong to a model, and what `model.safetensors.index.json` promises about them.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::problem::IndexFault;
use crate::{ModelFiles, Problem, ProblemKind, WeightsError};

/// Name of the index of a checkpoint in several files.
pub(crate) const INDEX_FILE: &str = "model.safetensors.index.json";
/// Files of MTPLX packs that stand beside the indexed ones.
const SIDECARS: [&str; 2] = ["mtp.safetensors", "ngram-table.safetensors"];

/// The files to load, and the tensors an index expects in each of them (none without an index).
pub(crate) struct WeightFiles(pub(crate) BTreeMap<String, Vec<String>>);

impl WeightFiles {
    /// Chooses the files of `model`: those the index names, or without one every `model*.safetensors`, and the
    /// sidecars in both cases. Other safetensors files in the folder are test data or copies.
    pub(crate) fn choose(model: &ModelFiles) -> Result<Self, WeightsError> {
        let mut chosen: BTreeMap<String, Vec<String>> = match model.read(INDEX_FILE)? {
            Some(json) => read_index(&json).map_err(|fault| WeightsError::Invalid {
                model: model.name(),
                problems: vec![Problem {
                    file: INDEX_FILE.to_owned(),
                    kind: ProblemKind::BadIndex { fault },
                }],
            })?,
            None => {
                let names = model.safetensors()?.into_iter().filter(|name| name.starts_with("model"));
                names.map(|name| (name, Vec::new())).collect()
            }
        };
        if chosen.is_empty() {
            return Err(WeightsError::NoWeightFiles { model: model.name() });
        }
        for name in model.safetensors()? {
            if SIDECARS.contains(&name.as_str()) {
                chosen.entry(name).or_default();
            }
        }
        Ok(Self(chosen))
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn read_index(json: &[u8]) -> Result<BTreeMap<String, Vec<String>>, IndexFault> {
    let index: Index =
        serde_json::from_slice(json).map_err(|error| IndexFault::Json { message: error.to_string() })?;
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (tensor, file) in index.weight_map {
        // The index comes with a download: it must not reach outside the folder.
        if !file.ends_with(".safetensors") || file.contains(['/', '\\', '\0']) {
            return Err(IndexFault::FileName { name: file });
        }
        files.entry(file).or_default().push(tensor);
    }
    Ok(files)
}
