//! What a sequence is between two passes: the caches of the model and of its draft head. A clone is a snapshot.

use ds4_array::{Array, eval};
use ds4_engine_api::EngineError;
use ds4_models::SequenceCache;

use crate::draft_history::DraftHistory;

#[derive(Clone, Debug)]
pub(crate) struct SequenceState {
    pub(crate) cache: SequenceCache,
    /// Present if the model has a draft head, and drafts are wanted or may be by whoever goes on from it.
    pub(crate) history: Option<DraftHistory>,
}

impl SequenceState {
    /// Tokens that it stands for.
    pub(crate) fn tokens(&self) -> usize {
        self.cache.tokens()
    }

    /// Its arrays by name, those of the draft head below `draft`.
    pub(crate) fn parts(&self) -> Vec<(String, Array)> {
        let mut parts = self.cache.state();
        if let Some(history) = &self.history {
            parts.extend(history.parts().into_iter().map(|(name, array)| (format!("draft.{name}"), array)));
        }
        parts
    }

    /// What the last pass left to be computed.
    pub(crate) fn pending(&self) -> impl Iterator<Item = Array> {
        let history = self.history.iter().flat_map(DraftHistory::pending);
        self.cache.pending().into_iter().chain(history)
    }

    /// Computes what the last pass left to be computed. A state that is kept must be there in full: it may be read from
    /// another thread, and what it hangs on could not be freed.
    pub(crate) fn evaluate(&self) -> Result<(), EngineError> {
        eval(&self.pending().collect::<Vec<_>>().iter().collect::<Vec<_>>())
            .map_err(|error| EngineError::Model { reason: error.to_string() })
    }

    /// The storages behind it, as (key, bytes).
    pub(crate) fn storages(&self) -> Vec<(usize, u64)> {
        let storages = self.parts().into_iter().filter_map(|(_, array)| array.storage_key());
        storages.map(|(key, bytes)| (key, bytes as u64)).collect()
    }
}
