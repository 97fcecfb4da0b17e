//! From a state to the bytes of its file and blobs.

use std::collections::{HashMap, HashSet};

use super::{BlobId, BlobRef, Checksum, INLINE, MAGIC, PROLOGUE, PROLOGUE_FIELDS, StateId, VERSION};
use crate::error::InvalidState;
use crate::prefix_index::common_prefix;
use crate::{Fingerprints, PartRef, SessionRecord};

/// Longest head of a part in the manifest is short of this; only used to reserve memory.
const TYPICAL_ENTRY: usize = 96;

/// A state as it will lie on disk. The bytes of its parts are still the caller's.
pub struct EncodedState<'a> {
    /// The name of the state.
    pub id: StateId,
    /// Prologue and head.
    pub head: Vec<u8>,
    /// What follows the head, in order.
    pub inline: Vec<&'a [u8]>,
    /// The blobs it uses, of which some may be on disk already.
    pub blobs: Vec<EncodedBlob<'a>>,
}

impl EncodedState<'_> {
    /// Length of the state's own file.
    pub fn file_bytes(&self) -> u64 {
        self.head.len() as u64 + self.inline.iter().map(|part| part.len() as u64).sum::<u64>()
    }
}

/// A blob as it will lie on disk.
pub struct EncodedBlob<'a> {
    /// Name and length.
    pub blob: BlobRef,
    /// Its parts in order.
    pub parts: Vec<&'a [u8]>,
}

/// Checks a state and makes its bytes. Nothing but the head is copied; every byte is hashed once.
pub fn encode<'a>(
    fingerprints: &Fingerprints,
    tokens: &[u32],
    session: Option<&SessionRecord>,
    parts: &[PartRef<'a>],
) -> Result<EncodedState<'a>, InvalidState> {
    check(session, parts)?;
    let checksums: Vec<Checksum> = parts.iter().map(|part| *blake3::hash(part.bytes).as_bytes()).collect();
    let groups = Groups::of(parts);
    let blobs: Vec<EncodedBlob<'a>> =
        groups.members.iter().map(|members| encode_blob(members, parts, &checksums)).collect();

    let mut head = vec![0; PROLOGUE];
    head.reserve(4 * tokens.len() + TYPICAL_ENTRY * parts.len());
    for fingerprint in [fingerprints.model, fingerprints.template, fingerprints.settings] {
        head.extend(fingerprint.0);
    }
    push_tokens(&mut head, tokens);
    push_session(&mut head, session, tokens);
    head.extend((blobs.len() as u32).to_le_bytes());
    for EncodedBlob { blob, .. } in &blobs {
        head.extend(blob.id.0);
        head.extend(blob.bytes.to_le_bytes());
    }
    push_manifest(&mut head, parts, &groups, &checksums);

    let inline: Vec<&[u8]> =
        parts.iter().filter(|part| part.group.is_none()).map(|part| part.bytes).collect();
    let inline_bytes = inline.iter().map(|part| part.len() as u64).sum();
    fill_prologue(&mut head, inline_bytes);
    let id = StateId::of(session.map(|session| session.id.as_str()), fingerprints, tokens);
    Ok(EncodedState { id, head, inline, blobs })
}

/// Which blob each part lies in. Blobs are numbered in the order in which their groups occur.
struct Groups {
    /// For each part, `None` if it lies in the state's own file.
    blob: Vec<Option<usize>>,
    /// For each blob its parts.
    members: Vec<Vec<usize>>,
}

impl Groups {
    fn of(parts: &[PartRef<'_>]) -> Self {
        let mut numbers = HashMap::new();
        let mut members: Vec<Vec<usize>> = Vec::new();
        let mut number = |i: usize, group: u64| {
            let number = *numbers.entry(group).or_insert_with(|| {
                members.push(Vec::new());
                members.len() - 1
            });
            members[number].push(i);
            number
        };
        let blob =
            parts.iter().enumerate().map(|(i, part)| part.group.map(|group| number(i, group))).collect();
        Self { blob, members }
    }
}

fn check(session: Option<&SessionRecord>, parts: &[PartRef<'_>]) -> Result<(), InvalidState> {
    let mut names = HashSet::new();
    for part in parts {
        if part.name.is_empty() || part.name.len() > usize::from(u16::MAX) || !names.insert(part.name) {
            return Err(InvalidState::Name { name: part.name.to_owned() });
        }
        if part.dtype.len() > usize::from(u8::MAX) || part.shape.len() > usize::from(u8::MAX) {
            return Err(InvalidState::TypeOrShape { name: part.name.to_owned() });
        }
    }
    match session {
        Some(session) if !session.has_valid_id() => Err(InvalidState::Session { id: session.id.clone() }),
        _ => Ok(()),
    }
}

fn encode_blob<'a>(members: &[usize], parts: &[PartRef<'a>], checksums: &[Checksum]) -> EncodedBlob<'a> {
    let slices: Vec<&[u8]> = members.iter().map(|i| parts[*i].bytes).collect();
    let bytes = slices.iter().map(|part| part.len() as u64).sum();
    let id = BlobId::of(members.iter().map(|i| (parts[*i].bytes.len() as u64, &checksums[*i])));
    EncodedBlob { blob: BlobRef { id, bytes }, parts: slices }
}

fn push_tokens(head: &mut Vec<u8>, tokens: &[u32]) {
    head.extend((tokens.len() as u64).to_le_bytes());
    head.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
}

/// The record as JSON, and of its timeline only what the state's own tokens do not say already.
fn push_session(head: &mut Vec<u8>, session: Option<&SessionRecord>, tokens: &[u32]) {
    let Some(session) = session else {
        head.extend(0u32.to_le_bytes());
        return;
    };
    let json = serde_json::to_vec(session).expect("strings and numbers can always be written as JSON");
    head.extend((json.len() as u32).to_le_bytes());
    head.extend(json);
    let shared = common_prefix(&session.timeline, tokens);
    head.extend((shared as u64).to_le_bytes());
    push_tokens(head, &session.timeline[shared..]);
}

fn push_manifest(head: &mut Vec<u8>, parts: &[PartRef<'_>], groups: &Groups, checksums: &[Checksum]) {
    head.extend((parts.len() as u32).to_le_bytes());
    let mut inline_end = 0;
    let mut blob_ends = vec![0u64; groups.members.len()];
    for ((part, blob), checksum) in parts.iter().zip(&groups.blob).zip(checksums) {
        let (number, end) = match *blob {
            Some(number) => (number as u32, &mut blob_ends[number]),
            None => (INLINE, &mut inline_end),
        };
        head.extend((part.name.len() as u16).to_le_bytes());
        head.extend(part.name.as_bytes());
        head.push(part.dtype.len() as u8);
        head.extend(part.dtype.as_bytes());
        head.push(part.shape.len() as u8);
        head.extend(part.shape.iter().flat_map(|size| size.to_le_bytes()));
        head.extend(number.to_le_bytes());
        head.extend(end.to_le_bytes());
        head.extend((part.bytes.len() as u64).to_le_bytes());
        head.extend(checksum);
        *end += part.bytes.len() as u64;
    }
}

fn fill_prologue(head: &mut [u8], inline_bytes: u64) {
    let head_bytes = (head.len() - PROLOGUE) as u64;
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[16..24].copy_from_slice(&head_bytes.to_le_bytes());
    head[24..32].copy_from_slice(&inline_bytes.to_le_bytes());
    let mut hasher = blake3::Hasher::new();
    hasher.update(&head[..PROLOGUE_FIELDS]).update(&head[PROLOGUE..]);
    head[PROLOGUE_FIELDS..PROLOGUE].copy_from_slice(hasher.finalize().as_bytes());
}
