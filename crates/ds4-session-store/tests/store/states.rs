//! States that can be made again from a number, so that what was loaded can be compared without keeping what was saved.

use ds4_session_store::{
    Fingerprint, Fingerprints, LoadedState, PartRef, SaveReport, SessionRecord, StateToSave, Store,
    StoreError, StoreOptions,
};

/// Tokens to a page.
const PAGE: usize = 16;
/// Bytes of a page of one layer.
const PAGE_BYTES: usize = 900;

pub(crate) fn options() -> StoreOptions {
    StoreOptions { bytes: 1 << 30, free_floor: 0, ..StoreOptions::default() }
}

pub(crate) fn fingerprints() -> Fingerprints {
    let of = |text: &str| Fingerprint::of(text.as_bytes());
    Fingerprints { model: of("model"), template: of("template"), settings: of("settings") }
}

/// Bytes that depend on every argument.
fn noise(seed: u64, name: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ name.wrapping_mul(0xD1B5_4A32_D192_ED03) ^ 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// A state of `length` tokens of session `session`: shorter ones of the session share its pages.
pub(crate) struct State {
    pub(crate) record: SessionRecord,
    pub(crate) tokens: Vec<u32>,
    /// Name, group, bytes.
    parts: Vec<(String, Option<u64>, Vec<u8>)>,
}

impl State {
    pub(crate) fn new(session: u64, length: usize) -> Self {
        // Tokens 0 to 9 are the same for all sessions, like a system prompt.
        let tokens: Vec<u32> =
            (0..length as u32).map(|i| if i < 10 { i } else { i + 1000 * (session as u32 + 1) }).collect();
        let mut record = SessionRecord::new(format!("session {session}"), 1000);
        record.timeline = tokens.clone();
        let mut parts = vec![("state".to_owned(), None, noise(session, length as u64, 2000))];
        for page in 0..length / PAGE {
            for layer in 0..2u64 {
                let bytes = noise(session, 1_000_000 + 2 * page as u64 + layer, PAGE_BYTES);
                parts.push((format!("{layer}.keys.{page}"), Some(page as u64), bytes));
            }
        }
        Self { record, tokens, parts }
    }

    pub(crate) fn save(&self, store: &Store) -> Result<SaveReport, StoreError> {
        let parts: Vec<PartRef<'_>> = self
            .parts
            .iter()
            .map(|(name, group, bytes)| PartRef { name, dtype: "f32", shape: &[1], bytes, group: *group })
            .collect();
        store.save(&StateToSave {
            session: Some(&self.record),
            fingerprints: &fingerprints(),
            tokens: &self.tokens,
            parts: &parts,
        })
    }

    /// Whether this is the state that was loaded.
    pub(crate) fn is(&self, loaded: &LoadedState) -> bool {
        let same_parts = loaded.parts.len() == self.parts.len()
            && loaded
                .parts
                .iter()
                .zip(&self.parts)
                .all(|(loaded, (name, _, bytes))| loaded.name == *name && *loaded.bytes == **bytes);
        loaded.tokens == self.tokens && loaded.session.as_ref() == Some(&self.record) && same_parts
    }
}
