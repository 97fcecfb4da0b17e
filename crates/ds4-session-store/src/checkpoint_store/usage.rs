//! How often and when states were used, which decides what goes first. Kept in `usage.json`, which may be lost: only the
//! order of eviction depends on it.

use std::collections::HashMap;
use std::fs;

use serde::{Deserialize, Serialize};

use super::folder::{self, Folder};
use crate::StateId;
use crate::budget;

/// Hits that decay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Usage {
    /// Hits as of `last_used`.
    hits: f64,
    /// Seconds since 1970.
    pub(super) last_used: u64,
}

impl Usage {
    pub(super) fn new(now: u64) -> Self {
        Self { hits: 0.0, last_used: now }
    }

    pub(super) fn hit(&mut self, now: u64, half_life: u64) {
        *self = Self { hits: self.hits(now, half_life) + 1.0, last_used: now };
    }

    /// A use that is no hit, such as saving the same state again.
    pub(super) fn touch(&mut self, now: u64, half_life: u64) {
        *self = Self { hits: self.hits(now, half_life), last_used: now };
    }

    /// Hits as of now: they halve with each half-life, and below a hundredth they are none.
    pub(super) fn hits(&self, now: u64, half_life: u64) -> f64 {
        let age = now.saturating_sub(self.last_used) as f64;
        let hits = self.hits * 0.5f64.powf(age / half_life.max(1) as f64);
        if hits < 0.01 { 0.0 } else { hits }
    }
}

/// What a state is worth: tokens that it saves for each byte that would become free without it, times its hits.
pub(super) fn worth(hits: f64, tokens: usize, usage: &budget::Usage) -> f64 {
    (hits + 1.0) * tokens as f64 / usage.exclusive_bytes.max(1) as f64
}

/// Reads the file of an earlier run. A missing or damaged one is as good as an empty one.
pub(super) fn read(folder: &Folder) -> HashMap<StateId, Usage> {
    let Ok(bytes) = fs::read(folder.usage()) else { return HashMap::new() };
    let entries: HashMap<String, Usage> = serde_json::from_slice(&bytes).unwrap_or_default();
    let finite = entries.into_iter().filter(|(_, usage)| usage.hits.is_finite() && usage.hits >= 0.0);
    finite.filter_map(|(id, usage)| Some((StateId::parse(&id)?, usage))).collect()
}

/// Writes the file. It is not synced and a failure is only logged, since it may be lost.
pub(super) fn write(folder: &Folder, usage: impl Iterator<Item = (StateId, Usage)>) {
    let entries: HashMap<String, Usage> = usage.map(|(id, usage)| (id.to_string(), usage)).collect();
    let bytes = serde_json::to_vec(&entries).expect("strings and numbers can always be written as JSON");
    let temp = folder.temp_path();
    let written = folder::write_new(&temp, &[&bytes]).and_then(|()| folder::publish(&temp, &folder.usage()));
    if let Err(error) = written {
        tracing::debug!(%error, "how often checkpoints were used is not kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_halve_and_vanish() {
        let mut usage = Usage::new(1000);
        usage.hit(1000, 100);
        usage.hit(1000, 100);
        assert_eq!(usage.hits(1000, 100), 2.0);
        assert_eq!(usage.hits(1100, 100), 1.0);
        assert_eq!(usage.hits(1000 + 800, 100), 0.0);
        usage.hit(1100, 100);
        assert_eq!(usage.hits(1100, 100), 2.0);
    }

    #[test]
    fn small_often_used_states_are_worth_more() {
        let bytes = |exclusive_bytes| budget::Usage { exclusive_bytes, bytes: 1, last_used: 0 };
        assert!(worth(1.0, 100, &bytes(10)) > worth(0.0, 100, &bytes(10)));
        assert!(worth(0.0, 100, &bytes(10)) > worth(0.0, 100, &bytes(20)));
        assert!(worth(0.0, 100, &bytes(0)).is_finite());
    }
}
