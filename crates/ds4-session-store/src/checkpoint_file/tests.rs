//! Round trips, and damage of every kind at every byte.

use proptest::prelude::*;

use super::*;
use crate::error::{Damage, InvalidState};
use crate::{Fingerprint, PartRef};

fn fingerprints() -> Fingerprints {
    let of = |text: &str| Fingerprint::of(text.as_bytes());
    Fingerprints { model: of("model"), template: of("template"), settings: of("settings") }
}

fn session() -> SessionRecord {
    let mut session = SessionRecord::new("chat-1", 1_700_000_000);
    session.title = Some("Lighthouses".into());
    session.timeline = vec![1, 2, 3, 4, 9];
    session
}

fn part<'a>(name: &'a str, bytes: &'a [u8], group: Option<u64>) -> PartRef<'a> {
    PartRef { name, dtype: "f32", shape: &[2, 3], bytes, group }
}

const TOKENS: [u32; 4] = [1, 2, 3, 4];

fn parts() -> [PartRef<'static>; 5] {
    [
        part("0.state", b"recurrent", None),
        part("1.keys.0", b"full page of keys", Some(0)),
        part("1.keys.1", b"half", None),
        part("1.values.0", b"full page of values", Some(0)),
        part("2.empty", b"", Some(7)),
    ]
}

/// The state's own file.
fn file() -> Vec<u8> {
    let encoded = encode(&fingerprints(), &TOKENS, Some(&session()), &parts()).unwrap();
    let mut file = encoded.head.clone();
    encoded.inline.iter().for_each(|part| file.extend(*part));
    assert_eq!(file.len() as u64, encoded.file_bytes());
    file
}

/// Head and inline parts, both verified, as the store does it.
fn read(file: &[u8]) -> Result<StateHead, Damage> {
    let head = read_head(file, file.len() as u64)?;
    let inline = &file[PROLOGUE + read_prologue(file)?.head_bytes as usize..];
    let own = head.parts.iter().filter(|part| part.place == Place::Inline);
    own.into_iter().try_for_each(|part| verify_part(part, &inline[part.range()]))?;
    Ok(head)
}

#[test]
fn a_state_comes_back_as_it_was() {
    let head = read(&file()).unwrap();
    assert_eq!(head.fingerprints, fingerprints());
    assert_eq!(head.tokens, TOKENS);
    assert_eq!(head.session.as_ref(), Some(&session()));
    let names: Vec<_> = head.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["0.state", "1.keys.0", "1.keys.1", "1.values.0", "2.empty"]);
    assert_eq!(head.parts[3].place, Place::Blob(0));
    assert_eq!((head.parts[3].offset, head.parts[3].length), (17, 19));
    assert_eq!((head.parts[2].place, head.parts[2].offset), (Place::Inline, 9));
    assert_eq!(head.blobs.iter().map(|blob| blob.bytes).collect::<Vec<_>>(), [36, 0]);
    assert_eq!(head.id(), encode(&fingerprints(), &TOKENS, Some(&session()), &parts()).unwrap().id);
}

#[test]
fn every_flipped_bit_is_found() {
    let sound = file();
    for at in 0..sound.len() {
        for bit in 0..8 {
            let mut file = sound.clone();
            file[at] ^= 1 << bit;
            assert!(read(&file).is_err(), "bit {bit} of byte {at} of {}", sound.len());
        }
    }
}

#[test]
fn every_cut_and_every_surplus_is_found() {
    let sound = file();
    for length in 0..sound.len() {
        let damage = read(&sound[..length]).unwrap_err();
        let expected = length < MAGIC.len();
        assert_eq!(damage == Damage::Foreign, expected, "cut at {length}: {damage}");
    }
    let longer = [sound.as_slice(), b"x"].concat();
    let (expected, actual) = (sound.len() as u64, longer.len() as u64);
    assert_eq!(read(&longer).unwrap_err(), Damage::Length { expected, actual });
}

#[test]
fn other_versions_and_foreign_files_are_named() {
    let mut older = file();
    older[8] = 0;
    assert_eq!(read(&older).unwrap_err(), Damage::OtherVersion { found: 0, readable: VERSION });
    assert_eq!(read(b"SQLite format 3\0").unwrap_err(), Damage::Foreign);
}

/// Puts a true checksum on a head that was tampered with, so that the checks behind it are reached.
fn sealed(mut file: Vec<u8>) -> Vec<u8> {
    let end = PROLOGUE + read_prologue(&file).unwrap().head_bytes as usize;
    let checksum = {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&file[..PROLOGUE_FIELDS]).update(&file[PROLOGUE..end]);
        *hasher.finalize().as_bytes()
    };
    file[PROLOGUE_FIELDS..PROLOGUE].copy_from_slice(&checksum);
    file
}

#[test]
fn sealed_nonsense_never_panics_and_never_points_outside() {
    let sound = file();
    let head_end = PROLOGUE + read_prologue(&sound).unwrap().head_bytes as usize;
    for at in PROLOGUE..head_end {
        for value in [0, 1, 0x7f, 0xff] {
            let mut file = sound.clone();
            file[at] = value;
            let Ok(head) = read_head(&sealed(file), sound.len() as u64) else { continue };
            for part in &head.parts {
                let end = match part.place {
                    Place::Inline => (sound.len() - head_end) as u64,
                    Place::Blob(number) => head.blobs[number].bytes,
                };
                assert!(part.offset + part.length <= end, "byte {at} = {value}");
            }
        }
    }
}

#[test]
fn a_blob_under_a_wrong_name_is_refused() {
    let mut file = file();
    let name = encode(&fingerprints(), &TOKENS, Some(&session()), &parts()).unwrap().blobs[0].blob.id;
    let at = file.windows(32).position(|window| window == name.0).unwrap();
    file[at] ^= 1;
    let length = file.len() as u64;
    assert_eq!(
        read_head(&sealed(file), length).unwrap_err(),
        Damage::Malformed { at: "places of the parts" }
    );
}

#[test]
fn states_that_cannot_be_written_are_named() {
    let encode = |session: Option<&SessionRecord>, parts: &[PartRef<'_>]| {
        encode(&fingerprints(), &TOKENS, session, parts).map(|_| ()).unwrap_err()
    };
    let twice = [part("a", b"", None), part("a", b"", None)];
    assert_eq!(encode(None, &twice), InvalidState::Name { name: "a".into() });
    let dtype = "x".repeat(256);
    let long = PartRef { dtype: &dtype, ..part("a", b"", None) };
    assert_eq!(encode(None, &[long]), InvalidState::TypeOrShape { name: "a".into() });
    for id in ["".to_owned(), "x".repeat(SessionRecord::LONGEST_ID + 1)] {
        let nameless = SessionRecord::new(&*id, 0);
        assert_eq!(encode(Some(&nameless), &parts()), InvalidState::Session { id });
    }
}

#[test]
fn names_of_states_tell_everything_apart() {
    let one = StateId::of(Some("a"), &fingerprints(), &TOKENS);
    let mut other = fingerprints();
    other.settings = Fingerprint::of(b"bf16 cache");
    assert_ne!(one, StateId::of(Some("b"), &fingerprints(), &TOKENS));
    assert_ne!(one, StateId::of(Some("a"), &other, &TOKENS));
    assert_ne!(one, StateId::of(Some("a"), &fingerprints(), &TOKENS[..3]));
    assert_eq!(StateId::parse(&one.to_string()), Some(one));
    assert_eq!(StateId::parse("+f"), None);
}

proptest! {
    #[test]
    fn any_state_comes_back(
        tokens in prop::collection::vec(any::<u32>(), 0..50),
        timeline in prop::collection::vec(any::<u32>(), 0..50),
        follows in any::<bool>(),
        contents in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), prop::option::of(0..4u64)), 0..12),
    ) {
        let mut session = SessionRecord::new("x", 0);
        session.timeline = if follows { [tokens.clone(), timeline].concat() } else { timeline };
        let names: Vec<String> = (0..contents.len()).map(|i| format!("part {i}")).collect();
        let parts: Vec<PartRef<'_>> = contents.iter().zip(&names)
            .map(|((bytes, group), name)| PartRef { name, dtype: "u8", shape: &[1], bytes, group: *group }).collect();
        let encoded = encode(&fingerprints(), &tokens, Some(&session), &parts).unwrap();
        let head = read_head(&encoded.head, encoded.file_bytes()).unwrap();
        prop_assert_eq!(&head.tokens, &tokens);
        prop_assert_eq!(head.session.as_ref(), Some(&session));
        for (entry, (bytes, _)) in head.parts.iter().zip(&contents) {
            let place = match entry.place {
                Place::Inline => encoded.inline.concat(),
                Place::Blob(number) => encoded.blobs[number].parts.concat(),
            };
            prop_assert_eq!(&place[entry.range()], bytes.as_slice());
            prop_assert!(verify_part(entry, bytes).is_ok());
        }
    }
}
