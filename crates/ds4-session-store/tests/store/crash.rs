//! kill -9 in the middle of writing: no acknowledged state is lost, no damaged one is loaded, nothing is left over.
//!
//! The test starts its own binary again as the process that is killed. `DS4_CRASH_ROUNDS` sets how often;
//! `cargo xtask prove sessions` asks for 200.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::states::{self, State};
use ds4_session_store::Store;

const FOLDER: &str = "DS4_CRASH_FOLDER";
const SEED: &str = "DS4_CRASH_SEED";

/// The numbers of the states that a process writes, in order.
struct Numbers(u64);

impl Iterator for Numbers {
    type Item = (u64, usize);

    fn next(&mut self) -> Option<(u64, usize)> {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = self.0 >> 33;
        Some((random % 5, 12 + (random / 5) as usize % 200))
    }
}

/// Not a test: the process that is killed. It says which states are on the disk.
#[test]
#[ignore = "is started by the test below"]
fn writer_process() {
    let (Ok(folder), Ok(seed)) = (std::env::var(FOLDER), std::env::var(SEED)) else { return };
    let store = Store::open(folder, states::options()).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "\nopen").unwrap();
    for (session, length) in Numbers(seed.parse().unwrap()) {
        State::new(session, length).save(&store).unwrap();
        writeln!(out, "saved {session} {length}").unwrap();
        out.flush().unwrap();
    }
}

/// Starts the writer, kills it after `delay` from its first line, and returns what it has acknowledged.
fn write_and_kill(folder: &Path, seed: u64, delay: Duration) -> Vec<(u64, usize)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::writer_process", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line == "open").expect("the writer opened the store");
    let reader = std::thread::spawn(move || {
        let saved = lines.filter_map(|line| {
            let mut words = line.split(' ');
            (words.next() == Some("saved")).then_some(())?;
            Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        });
        saved.collect()
    });
    std::thread::sleep(delay);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[test]
fn killed_writers_lose_nothing_that_was_acknowledged() {
    let rounds: u64 = std::env::var("DS4_CRASH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let dir = tempfile::TempDir::new().unwrap();
    let (mut all, mut orphans) = (std::collections::BTreeSet::new(), 0);
    for round in 0..rounds {
        let delay =
            Duration::from_micros(Numbers(round).next().map_or(0, |(a, b)| a * 9000 + b as u64 * 100));
        all.extend(write_and_kill(dir.path(), round, delay));
        let store = Store::open(dir.path(), states::options()).unwrap();
        let stats = store.stats();
        assert_eq!(stats.quarantined, [], "round {round}: a file is damaged");
        orphans += stats.orphans_removed;
        let mut found = std::collections::BTreeSet::new();
        for info in store.list() {
            let loaded = store.load(info.id).expect("what is listed can be loaded");
            let session =
                loaded.session.as_ref().unwrap().id.strip_prefix("session ").unwrap().parse().unwrap();
            assert!(
                State::new(session, loaded.tokens.len()).is(&loaded),
                "round {round}: another state was loaded"
            );
            found.insert((session, loaded.tokens.len()));
        }
        let lost: Vec<_> = all.difference(&found).collect();
        assert!(lost.is_empty(), "round {round}: acknowledged and lost: {lost:?}");
        assert!(found.len() <= all.len() + 1 + round as usize);
        // One state may have reached the disk without its acknowledgement having been read.
        all.extend(found);
        drop(store);
        assert_no_leftovers(dir.path());
    }
    println!("{rounds} kills, {} states kept, {orphans} orphans removed", all.len());
}

/// Every file of the folder belongs to a state: its bytes are those in the books.
fn assert_no_leftovers(folder: &Path) {
    assert_eq!(std::fs::read_dir(folder.join("tmp")).unwrap().count(), 0);
    let store = Store::open(folder, states::options()).unwrap();
    assert_eq!(store.stats().orphans_removed, 0);
    let on_disk = bytes_under(&folder.join("states")) + bytes_under(&folder.join("blobs"));
    assert_eq!(on_disk, store.stats().bytes);
}

fn bytes_under(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let meta = entry.metadata().unwrap();
            if meta.is_dir() { bytes_under(&entry.path()) } else { meta.len() }
        })
        .sum()
}
