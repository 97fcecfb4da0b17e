//! What a state depends on besides its tokens: the model, the template and the settings, each as a hash.
//!
//! What goes into each hash is the caller's business. Settings are those that change a state (cache types, for
//! example) and no others: a temperature is none of them.

use std::fmt;

use crate::MissReason;

/// A BLAKE3 hash of something that a state depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Everything that must be equal for a stored state to be of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprints {
    /// Weights and architecture.
    pub model: Fingerprint,
    /// Tokenizer and chat template.
    pub template: Fingerprint,
    /// Settings that change a state.
    pub settings: Fingerprint,
}

impl Fingerprints {
    /// Why a state made under `other` cannot be used here, or `None` if it can.
    pub fn mismatch(&self, other: &Self) -> Option<MissReason> {
        if self.model != other.model {
            Some(MissReason::ModelChanged)
        } else if self.template != other.template {
            Some(MissReason::TemplateChanged)
        } else if self.settings != other.settings {
            Some(MissReason::SettingsChanged)
        } else {
            None
        }
    }
}
