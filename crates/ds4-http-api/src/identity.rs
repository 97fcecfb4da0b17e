//! The marks on a response: its id, when it was made, and which configuration made it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use ds4_engine_api::ModelInfo;

/// What all chunks of one response share.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// For example `chatcmpl-` and 32 hexadecimal digits; unique, not secret.
    pub(crate) id: String,
    /// Unix seconds.
    pub(crate) created: u64,
    /// The served model's id.
    pub(crate) model: String,
    /// Changes when the same request and seed may give another answer.
    pub(crate) system_fingerprint: String,
}

impl Identity {
    /// A new identity; `prefix` is `chatcmpl` or `cmpl`.
    pub(crate) fn new(prefix: &str, served_id: &str, model: &ModelInfo) -> Self {
        Self {
            id: format!("{prefix}-{:016x}{:016x}", random_bits(), random_bits()),
            created: unix_seconds(),
            model: served_id.to_owned(),
            system_fingerprint: fingerprint(model),
        }
    }
}

/// Every `RandomState` has other keys, so that the hash of nothing is random.
fn random_bits() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// FNV-1a over what decides an answer besides the request: the weights' shape and the version of the program.
fn fingerprint(model: &ModelInfo) -> String {
    let text = format!(
        "{}/{}/{}/{}",
        model.model_type,
        model.parameters,
        model.weight_bytes,
        env!("CARGO_PKG_VERSION")
    );
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("fp_{:010x}", hash >> 24)
}
