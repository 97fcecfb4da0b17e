//! What the tests of this crate share: golden models by name, and logits of tokens.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of this, in tests only")]

use std::path::{Path, PathBuf};

use ds4_array::{Device, Stream};
use ds4_models::{BatchSegment, CausalLm, LoadOptions, LoadedModel, LogitRows, SequenceCache};
use ds4_weights::{Checkpoint, ModelFiles};

pub(crate) fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

pub(crate) fn load(path: &str) -> LoadedModel {
    let files = ModelFiles::open(&folder(path)).unwrap();
    ds4_models::load(&files, &LoadOptions::new(&Stream::new(&Device::cpu(2)))).unwrap()
}

/// Token ids of a golden file.
pub(crate) fn ids(path: &str, name: &str) -> Vec<u32> {
    let golden = Checkpoint::load_file(&folder(path)).unwrap();
    bytemuck::cast_slice(golden.require(name).unwrap().bytes.as_ref()).to_vec()
}

/// Logits of `tokens` appended to `cache`, one row for each.
pub(crate) fn logits(model: &dyn CausalLm, cache: &mut SequenceCache, tokens: &[u32]) -> Vec<f32> {
    let mut batch = [BatchSegment { tokens, cache, logits: LogitRows::All }];
    model.forward(&mut batch).unwrap().logits.unwrap().to_vec::<f32>().unwrap()
}
