//! From bytes to the head of a state. Everything read here is untrusted: a file may be cut, flipped, foreign, older, or
//! made by somebody else on purpose.

use std::collections::HashSet;

use super::byte_reader::ByteReader;
use super::{
    BlobId, BlobRef, Checksum, INLINE, LONGEST_HEAD, MAGIC, PROLOGUE, PROLOGUE_FIELDS, PartEntry, Place,
    StateHead, VERSION,
};
use crate::error::Damage;
use crate::{Fingerprint, Fingerprints, SessionRecord};

/// The fixed fields at the start of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prologue {
    /// Bytes of the head.
    pub head_bytes: u64,
    /// Bytes of the parts behind the head.
    pub inline_bytes: u64,
    /// Of the fields before it and of the head.
    pub checksum: Checksum,
}

impl Prologue {
    /// Length of the whole file.
    pub fn file_bytes(&self) -> u64 {
        (PROLOGUE as u64).saturating_add(self.head_bytes).saturating_add(self.inline_bytes)
    }
}

/// Reads the prologue. What it says about lengths is not verified before [`read_head`].
pub fn read_prologue(bytes: &[u8]) -> Result<Prologue, Damage> {
    // A foreign file is told from a cut one even if it is short.
    if !bytes.starts_with(&MAGIC) {
        return Err(Damage::Foreign);
    }
    let Some(bytes) = bytes.get(..PROLOGUE) else {
        return Err(Damage::Length { expected: PROLOGUE as u64, actual: bytes.len() as u64 });
    };
    let mut reader = ByteReader::new(&bytes[MAGIC.len()..]);
    let found = reader.u32("version")?;
    if found != VERSION {
        return Err(Damage::OtherVersion { found, readable: VERSION });
    }
    if reader.u32("reserved field")? != 0 {
        return Err(Damage::Malformed { at: "reserved field" });
    }
    let head_bytes = reader.u64("length of the head")?;
    if head_bytes > LONGEST_HEAD {
        return Err(Damage::Malformed { at: "length of the head" });
    }
    let inline_bytes = reader.u64("length of the inline parts")?;
    let checksum = reader.array("checksum")?;
    Ok(Prologue { head_bytes, inline_bytes, checksum })
}

/// Reads the head of a file of `file_bytes` bytes; `bytes` are at least the prologue and the head. Afterwards every
/// range in the manifest is known to lie in its file, and every blob's name to be that of its parts.
pub fn read_head(bytes: &[u8], file_bytes: u64) -> Result<StateHead, Damage> {
    let prologue = read_prologue(bytes)?;
    if prologue.file_bytes() != file_bytes {
        return Err(Damage::Length { expected: prologue.file_bytes(), actual: file_bytes });
    }
    let end = PROLOGUE + prologue.head_bytes as usize;
    let Some(head) = bytes.get(PROLOGUE..end) else {
        return Err(Damage::Length { expected: end as u64, actual: bytes.len() as u64 });
    };
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes[..PROLOGUE_FIELDS]).update(head);
    if *hasher.finalize().as_bytes() != prologue.checksum {
        return Err(Damage::HeadChecksum);
    }
    parse(head, prologue.inline_bytes)
}

/// Whether the bytes of a part are those that were saved.
pub fn verify_part(part: &PartEntry, bytes: &[u8]) -> Result<(), Damage> {
    if *blake3::hash(bytes).as_bytes() == part.checksum {
        Ok(())
    } else {
        Err(Damage::PartChecksum { part: part.name.clone() })
    }
}

fn parse(head: &[u8], inline_bytes: u64) -> Result<StateHead, Damage> {
    let mut reader = ByteReader::new(head);
    let mut fingerprint = || reader.array("fingerprints").map(Fingerprint);
    let fingerprints =
        Fingerprints { model: fingerprint()?, template: fingerprint()?, settings: fingerprint()? };
    let tokens = reader.tokens("tokens")?;
    let session = parse_session(&mut reader, &tokens)?;
    let blobs = parse_blobs(&mut reader)?;
    let parts = parse_manifest(&mut reader, blobs.len())?;
    if !reader.is_at_end() {
        return Err(Damage::Malformed { at: "end" });
    }
    check_places(&parts, &blobs, inline_bytes)?;
    Ok(StateHead { fingerprints, tokens, session, blobs, parts })
}

fn parse_session(reader: &mut ByteReader<'_>, tokens: &[u32]) -> Result<Option<SessionRecord>, Damage> {
    const AT: &str = "session record";
    let length = reader.u32(AT)?;
    if length == 0 {
        return Ok(None);
    }
    let json = reader.bytes(u64::from(length), AT)?;
    let mut session: SessionRecord =
        serde_json::from_slice(json).map_err(|_| Damage::Malformed { at: AT })?;
    let shared = usize::try_from(reader.u64(AT)?).ok().and_then(|shared| tokens.get(..shared));
    session.timeline = shared.ok_or(Damage::Malformed { at: AT })?.to_vec();
    session.timeline.extend(reader.tokens(AT)?);
    if session.has_valid_id() { Ok(Some(session)) } else { Err(Damage::Malformed { at: AT }) }
}

fn parse_blobs(reader: &mut ByteReader<'_>) -> Result<Vec<BlobRef>, Damage> {
    const AT: &str = "list of blobs";
    let count = reader.u32(AT)?;
    let mut blobs = Vec::new();
    for _ in 0..count {
        blobs.push(BlobRef { id: BlobId(reader.array(AT)?), bytes: reader.u64(AT)? });
    }
    Ok(blobs)
}

fn parse_manifest(reader: &mut ByteReader<'_>, blobs: usize) -> Result<Vec<PartEntry>, Damage> {
    const AT: &str = "manifest";
    let count = reader.u32(AT)?;
    let mut parts = Vec::new();
    for _ in 0..count {
        let name_length = reader.u16(AT)?;
        let name = reader.text(u64::from(name_length), AT)?.to_owned();
        let dtype_length = reader.u8(AT)?;
        let dtype = reader.text(u64::from(dtype_length), AT)?.to_owned();
        let dimensions = reader.u8(AT)?;
        let shape = (0..dimensions).map(|_| reader.u64(AT)).collect::<Result<_, _>>()?;
        let place = match reader.u32(AT)? {
            INLINE => Place::Inline,
            number if (number as usize) < blobs => Place::Blob(number as usize),
            _ => return Err(Damage::Malformed { at: AT }),
        };
        let (offset, length, checksum) = (reader.u64(AT)?, reader.u64(AT)?, reader.array(AT)?);
        parts.push(PartEntry { name, dtype, shape, place, offset, length, checksum });
    }
    Ok(parts)
}

/// Parts lie one behind the other, without gaps, and fill their file; names differ; blobs have the names of their parts.
fn check_places(parts: &[PartEntry], blobs: &[BlobRef], inline_bytes: u64) -> Result<(), Damage> {
    const MALFORMED: Damage = Damage::Malformed { at: "places of the parts" };
    let mut names = HashSet::new();
    let mut inline_end = 0u64;
    let mut members: Vec<(u64, Vec<(u64, &Checksum)>)> = vec![(0, Vec::new()); blobs.len()];
    for part in parts {
        if part.name.is_empty() || !names.insert(part.name.as_str()) {
            return Err(Damage::Malformed { at: "part names" });
        }
        let end = match part.place {
            Place::Inline => &mut inline_end,
            Place::Blob(number) => {
                members[number].1.push((part.length, &part.checksum));
                &mut members[number].0
            }
        };
        if part.offset != *end {
            return Err(MALFORMED);
        }
        *end = end.checked_add(part.length).ok_or(MALFORMED)?;
    }
    let is_full = |(blob, (end, members)): (&BlobRef, &(u64, Vec<(u64, &Checksum)>))| {
        blob.bytes == *end && !members.is_empty() && BlobId::of(members.iter().copied()) == blob.id
    };
    let fits = inline_end == inline_bytes && blobs.iter().zip(&members).all(is_full);
    if fits { Ok(()) } else { Err(MALFORMED) }
}
