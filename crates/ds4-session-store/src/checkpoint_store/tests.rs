//! The rules of the store, one by one.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use super::*;
use crate::{Fingerprint, PartRef, Refused, SessionRecord, StoreError};

fn fingerprints() -> Fingerprints {
    let of = |text: &str| Fingerprint::of(text.as_bytes());
    Fingerprints { model: of("model"), template: of("template"), settings: of("settings") }
}

fn options() -> StoreOptions {
    StoreOptions { bytes: 1 << 20, free_floor: 0, ..StoreOptions::default() }
}

fn open(dir: &TempDir) -> Store {
    Store::open(dir.path(), options()).unwrap()
}

/// Tokens from 0 up.
fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).collect()
}

fn record(id: &str, timeline: &[u32]) -> SessionRecord {
    let mut record = SessionRecord::new(id, 100);
    record.timeline = timeline.to_vec();
    record
}

/// Saves a state with a page of 1,000 bytes for each 10 tokens and 100 bytes that are its own.
fn save(store: &Store, session: &str, tokens: &[u32]) -> Result<SaveReport, StoreError> {
    let own = vec![tokens.len() as u8; 100];
    let pages: Vec<(String, Vec<u8>)> = tokens
        .chunks_exact(10)
        .enumerate()
        .map(|(i, page)| (format!("keys.{i}"), page[0].to_le_bytes().repeat(250)))
        .collect();
    let mut parts = vec![PartRef { name: "state", dtype: "f32", shape: &[25], bytes: &own, group: None }];
    parts.extend(pages.iter().enumerate().map(|(i, (name, bytes))| PartRef {
        name,
        dtype: "f16",
        shape: &[10, 50],
        bytes,
        group: Some(i as u64),
    }));
    let record = record(session, tokens);
    store.save(&StateToSave { session: Some(&record), fingerprints: &fingerprints(), tokens, parts: &parts })
}

fn hits(store: &Store, prompt: &[u32]) -> Vec<usize> {
    store.lookup(&fingerprints(), prompt).hits.iter().map(|hit| hit.tokens).collect()
}

fn blobs(dir: &TempDir) -> Vec<std::path::PathBuf> {
    let groups = fs::read_dir(dir.path().join("blobs")).unwrap();
    groups.flat_map(|group| fs::read_dir(group.unwrap().path()).unwrap()).map(|e| e.unwrap().path()).collect()
}

fn flip(path: &std::path::Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 4;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_state_survives_a_restart() {
    let dir = TempDir::new().unwrap();
    let id = save(&open(&dir), "chat", &tokens(25)).unwrap().id;
    let store = open(&dir);
    assert_eq!(hits(&store, &tokens(26)), [25]);
    let loaded = store.load(id).unwrap();
    assert_eq!(loaded.tokens, tokens(25));
    assert_eq!(loaded.session, Some(record("chat", &tokens(25))));
    let names: Vec<_> = loaded.parts.iter().map(|part| (part.name.as_str(), part.bytes.len())).collect();
    assert_eq!(names, [("state", 100), ("keys.0", 1000), ("keys.1", 1000)]);
    assert_eq!((loaded.parts[2].dtype.as_str(), loaded.parts[2].shape.as_slice()), ("f16", &[10, 50][..]));
    assert_eq!(loaded.parts[2].bytes[..4], 10u32.to_le_bytes());
}

#[test]
fn a_longer_state_writes_only_what_is_new() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let first = save(&store, "chat", &tokens(20)).unwrap();
    assert_eq!((first.blobs_written, first.bytes_shared), (2, 0));
    let second = save(&store, "chat", &tokens(30)).unwrap();
    assert_eq!((second.blobs_written, second.bytes_shared), (1, 2000));
    assert!(second.bytes_written < 2000, "{second:?}");
    let again = save(&store, "chat", &tokens(30)).unwrap();
    assert_eq!((again.already_stored, again.bytes_written), (true, 0));
    let other = save(&store, "another chat", &tokens(30)).unwrap();
    assert_eq!((other.blobs_written, other.bytes_shared), (0, 3000));
    assert_eq!(blobs(&dir).len(), 3);
}

#[test]
fn hits_come_longest_first_and_leave_a_token() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    for count in [10, 30, 20] {
        save(&store, "chat", &tokens(count)).unwrap();
    }
    assert_eq!(hits(&store, &tokens(31)), [30, 20, 10]);
    assert_eq!(hits(&store, &tokens(30)), [20, 10]);
}

#[test]
fn every_miss_has_its_reason() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let miss = |fingerprints: &Fingerprints, prompt: &[u32]| store.lookup(fingerprints, prompt).miss;
    assert_eq!(miss(&fingerprints(), &tokens(9)), Some(MissReason::NewSession));
    let id = save(&store, "chat", &tokens(20)).unwrap().id;
    assert_eq!(miss(&fingerprints(), &tokens(21)), None);
    assert_eq!(miss(&fingerprints(), &tokens(20)), Some(MissReason::NoSnapshotBefore { token: 20 }));
    assert_eq!(miss(&fingerprints(), &[0, 1, 2, 9]), Some(MissReason::DivergedAt { token: 3 }));
    let other = Fingerprint::of(b"other");
    let cases = [
        (Fingerprints { model: other, ..fingerprints() }, MissReason::ModelChanged),
        (Fingerprints { template: other, ..fingerprints() }, MissReason::TemplateChanged),
        (Fingerprints { settings: other, ..fingerprints() }, MissReason::SettingsChanged),
    ];
    for (fingerprints, reason) in cases {
        assert_eq!(miss(&fingerprints, &tokens(21)), Some(reason));
    }
    store.remove(id).unwrap();
    assert_eq!(miss(&fingerprints(), &tokens(21)), Some(MissReason::Evicted));
}

#[test]
fn a_state_larger_than_the_budget_is_refused_before_anything_goes() {
    let dir = TempDir::new().unwrap();
    let store = Store::open(dir.path(), StoreOptions { bytes: 5000, ..options() }).unwrap();
    save(&store, "small", &tokens(20)).unwrap();
    let error = save(&store, "large", &tokens(60)).unwrap_err();
    assert!(
        matches!(error, StoreError::OverBudget(Refused::LargerThanBudget { limit: 5000, .. })),
        "{error}"
    );
    assert_eq!(hits(&store, &tokens(61)), [20]);
    assert_eq!((store.stats().evicted, blobs(&dir).len()), (0, 2));
}

#[test]
fn what_was_just_written_stays_and_an_evicted_session_keeps_its_record() {
    let dir = TempDir::new().unwrap();
    let store = Store::open(dir.path(), StoreOptions { bytes: 4500, ..options() }).unwrap();
    let old: Vec<u32> = (500..520).collect();
    save(&store, "old", &old).unwrap();
    let new = save(&store, "new", &tokens(20)).unwrap();
    assert_eq!((new.evicted, hits(&store, &tokens(21))), (1, vec![20]));
    assert!(store.stats().bytes <= 4500);
    let prompt = [old.as_slice(), &[1]].concat();
    assert_eq!(store.lookup(&fingerprints(), &prompt).miss, Some(MissReason::Evicted));
    assert_eq!(store.session("old"), Some(record("old", &old)));
    drop(store);

    let store = open(&dir);
    let listed: Vec<_> = store.sessions().into_iter().map(|s| (s.id, s.states, s.tokens)).collect();
    assert_eq!(listed, [("new".to_owned(), 1, 20), ("old".to_owned(), 0, 20)]);
    assert_eq!(blobs(&dir).len(), 2, "blobs of the evicted state are gone");
    save(&store, "old", &old).unwrap();
    assert_eq!(store.list().len(), 2, "the lone record is gone once the session has a state again");
}

#[test]
fn a_smaller_budget_is_kept_from_the_start() {
    let dir = TempDir::new().unwrap();
    {
        let store = open(&dir);
        save(&store, "a", &tokens(20)).unwrap();
        save(&store, "b", &(700..720).collect::<Vec<_>>()).unwrap();
    }
    let store = Store::open(dir.path(), StoreOptions { bytes: 4500, ..options() }).unwrap();
    assert!(store.stats().bytes <= 4500);
    assert_eq!(store.list().iter().filter(|info| info.tokens > 0).count(), 1);
}

#[test]
fn often_used_states_outlive_new_ones() {
    let dir = TempDir::new().unwrap();
    let now = Arc::new(AtomicU64::new(1_000_000));
    let clock = Arc::clone(&now);
    let clock: Clock = Arc::new(move || clock.load(Ordering::Relaxed));
    let options = StoreOptions { bytes: 7500, clock, ..options() };
    let first: Vec<u32> = (500..520).collect();
    {
        let store = Store::open(dir.path(), options.clone()).unwrap();
        let id = save(&store, "a", &first).unwrap().id;
        store.load(id).unwrap();
        save(&store, "b", &(700..720).collect::<Vec<_>>()).unwrap();
    }
    // Hits are remembered over a restart.
    let store = Store::open(dir.path(), options).unwrap();
    save(&store, "c", &(900..920).collect::<Vec<_>>()).unwrap();
    assert_eq!(hits(&store, &[first.as_slice(), &[1]].concat()), [20]);
    // Days later they do not count any more.
    now.fetch_add(10 * 24 * 3600, Ordering::Relaxed);
    save(&store, "d", &(1100..1120).collect::<Vec<_>>()).unwrap();
    assert!(hits(&store, &[first.as_slice(), &[1]].concat()).is_empty());
}

#[test]
fn no_more_is_written_in_an_hour_than_allowed() {
    let dir = TempDir::new().unwrap();
    let now = Arc::new(AtomicU64::new(1_000_000));
    let clock = Arc::clone(&now);
    let clock: Clock = Arc::new(move || clock.load(Ordering::Relaxed));
    let store = Store::open(dir.path(), StoreOptions { hourly_writes: 4000, clock, ..options() }).unwrap();
    save(&store, "a", &tokens(20)).unwrap();
    let error = save(&store, "b", &(700..720).collect::<Vec<_>>()).unwrap_err();
    assert!(matches!(error, StoreError::WriteBudget { limit: 4000, .. }), "{error}");
    now.fetch_add(3600, Ordering::Relaxed);
    save(&store, "b", &(700..720).collect::<Vec<_>>()).unwrap();
}

#[test]
fn the_disk_is_not_filled_beyond_the_floor() {
    let dir = TempDir::new().unwrap();
    let store = Store::open(dir.path(), StoreOptions { free_floor: u64::MAX, ..options() }).unwrap();
    let error = save(&store, "a", &tokens(20)).unwrap_err();
    assert!(matches!(error, StoreError::TooLittleSpace { floor: u64::MAX, .. }), "{error}");
    assert!(blobs(&dir).is_empty());
}

#[test]
fn a_damaged_blob_is_a_miss_and_can_be_written_again() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let short = save(&store, "chat", &tokens(10)).unwrap().id;
    let long = save(&store, "chat", &tokens(20)).unwrap().id;
    let shared = {
        let inner = store.inner();
        let of_short: Vec<_> = inner.budget.storages(&short).unwrap();
        of_short.into_iter().find_map(|(file, _)| match file {
            Stored::Blob(id) => Some(store.folder.blob(id)),
            Stored::State(_) => None,
        })
    };
    flip(&shared.unwrap(), 500);
    let miss = store.load(long).unwrap_err();
    assert_eq!(miss.damage, Some(Damage::PartChecksum { part: "keys.0".into() }));
    let lookup = store.lookup(&fingerprints(), &tokens(21));
    assert_eq!((lookup.hits.len(), lookup.miss), (0, Some(MissReason::Corrupt)));
    assert_eq!(store.stats().quarantined.len(), 3, "the blob and the two states that used it");
    assert!(fs::read_dir(store.quarantine_path()).unwrap().count() >= 3);
    assert!(blobs(&dir).is_empty());
    let id = save(&store, "chat", &tokens(20)).unwrap().id;
    assert_eq!(store.load(id).unwrap().parts.len(), 3);
    assert_eq!(store.lookup(&fingerprints(), &tokens(21)).miss, None);
}

#[test]
fn every_flipped_byte_of_the_folder_is_a_miss() {
    let dir = TempDir::new().unwrap();
    let id = save(&open(&dir), "chat", &tokens(20)).unwrap().id;
    let state = dir.path().join("states").join(id.to_string());
    let files: Vec<_> = blobs(&dir).into_iter().chain([state]).collect();
    for path in files {
        let sound = fs::read(&path).unwrap();
        for at in (0..sound.len()).step_by(if sound.len() > 2000 { 1 } else { 7 }) {
            let copy = TempDir::new().unwrap();
            copy_folder(dir.path(), copy.path());
            let damaged = copy.path().join(path.strip_prefix(dir.path()).unwrap());
            flip(&damaged, at);
            let store = open(&copy);
            // Found at the start or at loading; in both cases nothing is loaded.
            assert!(store.load(id).is_err(), "byte {at} of {}", path.display());
            assert!(!store.stats().quarantined.is_empty());
            assert!(hits(&store, &tokens(21)).is_empty());
        }
    }
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn foreign_older_cut_and_renamed_files_are_put_aside_at_the_start() {
    let dir = TempDir::new().unwrap();
    let id = save(&open(&dir), "chat", &tokens(20)).unwrap().id;
    let states = dir.path().join("states");
    let sound = fs::read(states.join(id.to_string())).unwrap();
    let mut older = sound.clone();
    older[8] = 0;
    let name = |digit: &str| digit.repeat(32);
    fs::write(states.join("notes.txt"), "not mine").unwrap();
    fs::write(states.join(name("a")), older).unwrap();
    fs::write(states.join(name("b")), &sound[..sound.len() / 2]).unwrap();
    fs::write(states.join(name("c")), &sound).unwrap();
    fs::write(states.join(name("d")), b"").unwrap();
    let store = open(&dir);
    let mut found: Vec<_> = store.stats().quarantined.into_iter().map(|q| (q.file, q.damage)).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let (expected, actual) = (sound.len() as u64, sound.len() as u64 / 2);
    let wanted = [
        (name("a"), Damage::OtherVersion { found: 0, readable: crate::VERSION }),
        (name("b"), Damage::Length { expected, actual }),
        (name("c"), Damage::WrongName),
        (name("d"), Damage::Foreign),
        ("notes.txt".to_owned(), Damage::Foreign),
    ];
    assert_eq!(found, wanted);
    let why = fs::read_to_string(store.quarantine_path().join(format!("{}.why", name("a")))).unwrap();
    assert!(why.starts_with("format version 0, this program reads version 1"), "{why}");
    assert_eq!(hits(&store, &tokens(21)), [20]);
}

#[test]
fn the_rest_of_a_crash_is_removed() {
    let dir = TempDir::new().unwrap();
    let id = save(&open(&dir), "chat", &tokens(20)).unwrap().id;
    fs::write(dir.path().join("tmp/7"), b"half").unwrap();
    let orphan = dir.path().join("blobs").join("ab").join("ab".repeat(32));
    fs::create_dir_all(orphan.parent().unwrap()).unwrap();
    fs::write(&orphan, b"nobody's").unwrap();
    let store = open(&dir);
    assert_eq!(store.stats().orphans_removed, 1);
    assert!(!orphan.exists());
    assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0);
    assert!(store.load(id).is_ok());
}

#[test]
fn a_failed_write_leaves_everything_as_it_was() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let id = save(&store, "chat", &tokens(20)).unwrap().id;
    let before = store.stats();
    fs::remove_dir(dir.path().join("tmp")).unwrap();
    let error = save(&store, "chat", &tokens(30)).unwrap_err();
    assert!(matches!(error, StoreError::Write { .. }), "{error}");
    // The same state with another record would replace its file.
    let parts = [PartRef { name: "state", dtype: "f32", shape: &[1], bytes: &[1; 4], group: None }];
    let record = record("chat", &tokens(20));
    let replacing = StateToSave {
        session: Some(&record),
        fingerprints: &fingerprints(),
        tokens: &tokens(20),
        parts: &parts,
    };
    assert!(store.save(&replacing).is_err());
    let after = store.stats();
    assert_eq!((after.states, after.bytes), (before.states, before.bytes));
    assert_eq!(blobs(&dir).len(), 2);
    assert_eq!(store.load(id).unwrap().parts.len(), 3);
    fs::create_dir(dir.path().join("tmp")).unwrap();
    save(&store, "chat", &tokens(30)).unwrap();
    assert_eq!(hits(&store, &tokens(31)), [30, 20]);
}

#[test]
fn folders_that_cannot_be_used_are_named() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let Err(error) = Store::open(file.join("store"), options()) else { panic!("opened under a file") };
    assert!(matches!(error, StoreError::Folder { .. }));
    assert!(error.to_string().contains("give a folder that this user can write"), "{error}");
}

#[test]
fn a_second_store_on_one_folder_is_refused_or_reads() {
    let dir = TempDir::new().unwrap();
    let first = open(&dir);
    let id = save(&first, "chat", &tokens(20)).unwrap().id;
    let Err(error) = Store::open(dir.path(), options()) else { panic!("two writers") };
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    let reading = StoreOptions { when_locked: WhenLocked::ReadOnly, ..options() };
    let second = Store::open(dir.path(), reading).unwrap();
    assert!(second.stats().read_only);
    assert_eq!(second.load(id).unwrap().tokens, tokens(20));
    assert!(matches!(save(&second, "b", &tokens(9)).unwrap_err(), StoreError::ReadOnly { .. }));
    assert!(matches!(second.remove(id).unwrap_err(), StoreError::ReadOnly { .. }));
    first.remove(id).unwrap();
    assert_eq!(second.load(id).unwrap_err().reason, MissReason::Evicted);
    drop(first);
    assert!(Store::open(dir.path(), options()).is_ok());
}

#[test]
fn a_state_that_the_engine_cannot_use_does_not_come_back() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let id = save(&store, "chat", &tokens(20)).unwrap().id;
    store.reject(id, "part 3 has another shape");
    let lookup = store.lookup(&fingerprints(), &tokens(21));
    assert_eq!((lookup.hits.len(), lookup.miss), (0, Some(MissReason::Corrupt)));
    drop(store);
    assert!(hits(&open(&dir), &tokens(21)).is_empty());
}

#[test]
fn sessions_can_be_listed_removed_and_pruned() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    save(&store, "a", &tokens(10)).unwrap();
    save(&store, "a", &tokens(20)).unwrap();
    save(&store, "b", &(700..720).collect::<Vec<_>>()).unwrap();
    let listed: Vec<_> = store.sessions().into_iter().map(|s| (s.id, s.states, s.tokens)).collect();
    assert_eq!(listed, [("a".to_owned(), 2, 20), ("b".to_owned(), 1, 20)]);
    let known = store.session_info("a").unwrap();
    assert_eq!((known.states, known.exclusive_bytes), (2, store.sessions()[0].exclusive_bytes));
    assert_eq!(store.session_info("c"), None);
    assert_eq!(store.session("a").unwrap().timeline, tokens(20));
    let removed = store.remove_session("a").unwrap();
    assert_eq!((removed.states, removed.bytes), (2, known.exclusive_bytes));
    assert_eq!(store.session("a"), None);
    assert_eq!(blobs(&dir).len(), 2);
    assert_eq!(store.prune(Prune::default()).unwrap(), Removed::default());
    let pruned = store.prune(Prune { to_bytes: Some(0), ..Prune::default() }).unwrap();
    assert_eq!((pruned.states, blobs(&dir).len()), (1, 0));
    assert_eq!(store.session("b").unwrap().timeline.len(), 20, "the record of the session stays");
    let removed = store.prune(Prune { unused_since: Some(u64::MAX), ..Prune::default() }).unwrap();
    assert_eq!((removed.states, store.stats().bytes, store.sessions().len()), (1, 0, 0));
}

#[test]
fn quarantine_is_limited() {
    let dir = TempDir::new().unwrap();
    drop(open(&dir));
    for i in 0..20 {
        fs::write(dir.path().join("states").join(format!("foreign {i}")), [b'x'; 1000]).unwrap();
    }
    let store = Store::open(dir.path(), StoreOptions { quarantine_bytes: 3000, ..options() }).unwrap();
    let files = fs::read_dir(store.quarantine_path()).unwrap();
    let bytes: u64 = files.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 3000, "{bytes}");
    assert_eq!(store.stats().quarantined.len(), 20);
}
