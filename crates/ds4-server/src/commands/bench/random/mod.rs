//! Random 4-bit checkpoints in memory: the real architecture at a size worth measuring, without a download.
//!
//! The model itself says which tensors it needs; they are filled with random values of sane magnitude and loaded through
//! the path that every checkpoint takes. What such a model writes is noise.

mod fill;
mod layout;
mod mid;

use anyhow::Context as _;
use ds4_weights::ModelFiles;

use crate::exit_code::Usage;

/// A file with no tensors: the length of an empty JSON object, and the object.
const NO_TENSORS: &[u8] = b"\x02\0\0\0\0\0\0\0{}";

/// Makes the checkpoint of this name with values from `seed`, on `threads` threads.
///
/// Its memory is never given back: the model uses it for as long as the program runs.
pub(super) fn checkpoint(name: &str, seed: u64, threads: usize) -> anyhow::Result<ModelFiles> {
    let config = mid::config(name).ok_or_else(|| {
        let known: Vec<&str> = mid::names().collect();
        Usage(format!("--random {name}: there are {}", known.join(", ")))
    })?;
    let experts = config["n_routed_experts"].as_u64().unwrap_or(1);
    let name: &'static str = format!("random {name}").leak();
    let config: &'static [u8] = serde_json::to_vec(&config)?.leak();
    let empty =
        ModelFiles::embedded(name, leak([("config.json", config), ("model.safetensors", NO_TENSORS)]));
    let needed =
        ds4_models::missing_tensors(&empty).context("the configuration is not one of this family")?;
    let plan = layout::Plan::of(&needed, experts);
    let weights = fill::weights(&plan, seed, threads)?;
    Ok(ModelFiles::embedded(name, leak([("config.json", config), ("model.safetensors", weights)])))
}

fn leak<T, const N: usize>(values: [T; N]) -> &'static [T] {
    Vec::from(values).leak()
}
