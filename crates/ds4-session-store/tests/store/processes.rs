//! Two processes on one folder: one writes, the other is told so and can read.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::states::{self, State};
use ds4_session_store::{Store, StoreError, StoreOptions, WhenLocked};

const FOLDER: &str = "DS4_OTHER_PROCESS";

/// Not a test: the other process. It holds the folder until its input ends.
#[test]
#[ignore = "is started by the test below"]
fn other_process() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let store = Store::open(folder, states::options()).unwrap();
    State::new(1, 50).save(&store).unwrap();
    println!("\nholds it");
    let _ = std::io::stdin().lines().next();
}

#[test]
fn the_second_process_is_refused_or_reads_until_the_first_ends() {
    let dir = tempfile::TempDir::new().unwrap();
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["processes::other_process", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line == "holds it").expect("the other process opened the store");

    let Err(error) = Store::open(dir.path(), states::options()) else { panic!("two writers on one folder") };
    assert!(matches!(error, StoreError::InUse { .. }));
    assert!(error.to_string().contains("give this one a folder of its own"), "{error}");

    let reading = StoreOptions { when_locked: WhenLocked::ReadOnly, ..states::options() };
    let store = Store::open(dir.path(), reading).unwrap();
    let state = State::new(1, 50);
    let hit = store.lookup(&states::fingerprints(), &[state.tokens.as_slice(), &[1]].concat()).hits.remove(0);
    assert!(state.is(&store.load(hit.id).unwrap()));
    assert!(matches!(State::new(2, 50).save(&store), Err(StoreError::ReadOnly { .. })));

    // Killed, not ended: the lock is given back all the same.
    other.kill().unwrap();
    other.wait().unwrap();
    State::new(2, 50).save(&Store::open(dir.path(), states::options()).unwrap()).unwrap();
}
