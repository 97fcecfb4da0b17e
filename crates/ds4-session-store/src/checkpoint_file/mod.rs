//! The file of one session state: what is in it. `docs/checkpoint-format.md` has the layout byte by byte.
//!
//! `encode` makes the bytes, `decode` reads and checks them; neither touches a disk. A file has a prologue of fixed
//! size, a head (fingerprints, tokens, session record, list of blobs, manifest of parts) and the parts that belong to this state alone.
//! Parts shared with other states lie in blobs, which are named by their content.

mod byte_reader;
mod decode;
mod encode;

use std::fmt;
use std::ops::Range;

pub use decode::{Prologue, read_head, read_prologue, verify_part};
pub use encode::{EncodedBlob, EncodedState, encode};

use crate::{Fingerprints, SessionRecord};

/// First bytes of every state file.
pub const MAGIC: [u8; 8] = *b"DS4STATE";
/// Version that is written and read.
pub const VERSION: u32 = 1;
/// Bytes of the prologue.
pub const PROLOGUE: usize = 64;
/// Of them, those before the checksum, which it covers.
pub(crate) const PROLOGUE_FIELDS: usize = 32;
/// Most bytes a head may have; a longer one is damage, and is not read into memory.
pub const LONGEST_HEAD: u64 = 1 << 30;
/// Blob number of a part that lies in the state's own file.
pub(crate) const INLINE: u32 = u32::MAX;

/// A BLAKE3 hash of some bytes.
pub type Checksum = [u8; 32];

/// The name of a state: a hash of its session, fingerprints and tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub [u8; 16]);

impl StateId {
    /// The name of a state.
    pub fn of(session: Option<&str>, fingerprints: &Fingerprints, tokens: &[u32]) -> Self {
        let mut hasher = blake3::Hasher::new();
        let session = session.unwrap_or_default();
        hasher.update(&(session.len() as u64).to_le_bytes()).update(session.as_bytes());
        for fingerprint in [fingerprints.model, fingerprints.template, fingerprints.settings] {
            hasher.update(&fingerprint.0);
        }
        for chunk in tokens.chunks(1024) {
            let bytes: Vec<u8> = chunk.iter().flat_map(|token| token.to_le_bytes()).collect();
            hasher.update(&bytes);
        }
        let hash = hasher.finalize();
        Self(std::array::from_fn(|i| hash.as_bytes()[i]))
    }

    /// From 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }
}

/// The name of a blob: a hash over the lengths and checksums of its parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobId(pub [u8; 32]);

impl BlobId {
    /// The name of a blob with these parts. To know the checksum of every part is to know the blob's, so that no byte
    /// is hashed twice and each part can be verified alone.
    pub fn of<'a>(parts: impl Iterator<Item = (u64, &'a Checksum)>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for (length, checksum) in parts {
            hasher.update(&length.to_le_bytes()).update(checksum);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// From 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }
}

/// A blob that a state uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobRef {
    /// Its name.
    pub id: BlobId,
    /// Its length.
    pub bytes: u64,
}

/// Where the bytes of a part are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the state's own file, behind the head.
    Inline,
    /// In this one of the state's blobs.
    Blob(usize),
}

/// A part in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartEntry {
    /// Unique in the state.
    pub name: String,
    /// Element type as the caller wrote it.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Where it is.
    pub place: Place,
    /// First byte, counted from the start of the blob or of the inline parts.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Of its bytes.
    pub checksum: Checksum,
}

impl PartEntry {
    /// Its bytes in the blob or among the inline parts. A checked head fits into memory only if its parts do.
    pub(crate) fn range(&self) -> Range<usize> {
        self.offset as usize..(self.offset + self.length) as usize
    }
}

/// Everything about a state but its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateHead {
    /// What the state depends on.
    pub fingerprints: Fingerprints,
    /// Tokens that the state stands for.
    pub tokens: Vec<u32>,
    /// The session it belongs to, if any.
    pub session: Option<SessionRecord>,
    /// Blobs it uses.
    pub blobs: Vec<BlobRef>,
    /// Its parts.
    pub parts: Vec<PartEntry>,
}

impl StateHead {
    /// The name of this state.
    pub fn id(&self) -> StateId {
        StateId::of(
            self.session.as_ref().map(|session| session.id.as_str()),
            &self.fingerprints,
            &self.tokens,
        )
    }
}

fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_plain = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() != 2 * N || !is_plain {
        return None;
    }
    let mut bytes = [0; N];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(bytes)
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

#[cfg(test)]
mod tests;
