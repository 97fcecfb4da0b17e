//! States on disk: arrays to bytes and back. Nothing is converted: what is restored has the bits that were saved.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use ds4_array::{Array, DType, Stream};
use ds4_session_store::{Fingerprints, LoadedState, PartRef, StateParts, Store};

use crate::model_runner::ModelRunner;
use crate::state::SequenceState;

/// Where states are saved, and what they depend on.
#[derive(Clone)]
pub struct DiskOptions {
    /// The folder.
    pub store: Arc<Store>,
    /// The model, its template and the settings that change a state.
    pub fingerprints: Fingerprints,
}

/// A state whose elements are read on the thread that writes, so that decoding does not wait for it.
pub(crate) struct SavedState {
    parts: Vec<Part>,
    bytes: OnceLock<Vec<Vec<u8>>>,
}

struct Part {
    name: String,
    array: Array,
    shape: Vec<u64>,
    group: Option<u64>,
}

impl Part {
    fn reference<'a>(&'a self, bytes: &'a [u8]) -> PartRef<'a> {
        PartRef {
            name: &self.name,
            dtype: self.array.dtype().name(),
            shape: &self.shape,
            bytes,
            group: self.group,
        }
    }
}

impl SavedState {
    pub(crate) fn new(state: &SequenceState) -> Self {
        let named = state.parts();
        let names: HashSet<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
        let groups: Vec<Option<u64>> = named.iter().map(|(name, _)| group(name, &names)).collect();
        let part = |((name, array), group): ((String, Array), Option<u64>)| {
            let shape = array.shape().iter().map(|&size| size as u64).collect();
            Part { name, array, shape, group }
        };
        Self { parts: named.into_iter().zip(groups).map(part).collect(), bytes: OnceLock::new() }
    }
}

/// Pages that a later page follows are full and never change: states of one session share them. Pages of one number fill
/// up together, so they lie in one file.
fn group(name: &str, names: &HashSet<&str>) -> Option<u64> {
    let (prefix, number) = name.rsplit_once('.')?;
    let number: u64 = number.parse().ok()?;
    let next = format!("{prefix}.{}", number + 1);
    let kind = prefix.rsplit('.').next().unwrap_or_default();
    let kind = kind.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into())) & 0xffff;
    names.contains(next.as_str()).then_some(number << 16 | kind)
}

impl StateParts for SavedState {
    fn parts(&self) -> Vec<PartRef<'_>> {
        // The state was evaluated before it was kept. An array that is not there would be saved empty and fail to load.
        let read = |part: &Part| part.array.read_bytes(<[u8]>::to_vec).unwrap_or_default();
        let bytes = self.bytes.get_or_init(|| self.parts.iter().map(read).collect());
        self.parts.iter().zip(bytes).map(|(part, bytes)| part.reference(bytes)).collect()
    }
}

/// The state that was loaded, if it fits the model; else why not.
pub(crate) fn load_state(
    loaded: &LoadedState,
    runner: &ModelRunner,
    stream: &Stream,
) -> Result<SequenceState, String> {
    let parts: HashMap<&str, _> = loaded.parts.iter().map(|part| (part.name.as_str(), part)).collect();
    let find = |name: &str| {
        let part = parts.get(name)?;
        let shape: Vec<usize> = part.shape.iter().map(|&size| size as usize).collect();
        Array::from_bytes(stream, &part.bytes, DType::from_name(&part.dtype)?, &shape).ok()
    };
    let tokens = loaded.tokens.len();
    let mut state = runner.new_state(true);
    state.cache.restore(tokens, &mut |name| find(name)).map_err(|error| error.to_string())?;
    if let Some(history) = &mut state.history
        && history.restore(tokens, &mut |name| find(&format!("draft.{name}"))).is_err()
    {
        // It was saved without drafts: the sequence goes on without them.
        state.history = None;
    }
    Ok(state)
}
