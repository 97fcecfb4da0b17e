//! The writer thread: what is submitted is acknowledged when it is on the disk, and nobody waits for it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::states;
use ds4_session_store::{
    PartRef, PendingState, SaveOutcome, SessionRecord, SnapshotKind, StateParts, Store, Submitted,
    WriterOptions, WriterThread,
};

const LONG: Duration = Duration::from_secs(60);

/// Parts that can only be shown once somebody allows it, so that a test can hold the thread up.
struct Gated {
    bytes: Vec<u8>,
    gate: Option<Gate>,
}

struct Gate {
    entered: Sender<()>,
    open: Mutex<Receiver<()>>,
}

impl StateParts for Gated {
    fn parts(&self) -> Vec<PartRef<'_>> {
        if let Some(gate) = &self.gate {
            gate.entered.send(()).unwrap();
            gate.open.lock().unwrap().recv().unwrap();
        }
        vec![PartRef { name: "state", dtype: "u8", shape: &[8], bytes: &self.bytes, group: None }]
    }
}

fn state(session: &str, tokens: u32, gate: Option<Gate>) -> PendingState {
    PendingState {
        session: Some(SessionRecord::new(session, 1)),
        kind: SnapshotKind::TurnEnd,
        fingerprints: states::fingerprints(),
        tokens: (0..tokens).collect(),
        parts: Box::new(Gated { bytes: vec![tokens as u8; 8], gate }),
    }
}

struct Setup {
    store: Arc<Store>,
    thread: WriterThread,
    outcomes: Receiver<(String, SaveOutcome)>,
    _dir: tempfile::TempDir,
}

fn setup(waiting: usize) -> Setup {
    let dir = tempfile::TempDir::new().unwrap();
    let store = Arc::new(Store::open(dir.path(), states::options()).unwrap());
    let (send, outcomes) = channel();
    let done = move |session: Option<&str>, outcome| {
        // The test may have ended.
        let _ = send.send((session.unwrap_or_default().to_owned(), outcome));
    };
    let thread = WriterThread::start(Arc::clone(&store), WriterOptions { waiting }, done).unwrap();
    Setup { store, thread, outcomes, _dir: dir }
}

/// Holds the thread up with a first state, until the sender is used.
fn hold(setup: &Setup) -> Sender<()> {
    let (open, gate) = channel();
    let (entered, has_entered) = channel();
    let gate = Gate { entered, open: Mutex::new(gate) };
    assert_eq!(setup.thread.submit(state("first", 3, Some(gate))), Submitted::Queued);
    has_entered.recv().unwrap();
    open
}

#[test]
fn acknowledged_states_are_on_the_disk() {
    let setup = setup(8);
    for session in ["a", "b", "c"] {
        assert_eq!(setup.thread.submit(state(session, 5, None)), Submitted::Queued);
    }
    assert!(setup.thread.flush(LONG));
    for _ in 0..3 {
        let (_, SaveOutcome::Saved(report)) = setup.outcomes.try_recv().unwrap() else { panic!("not saved") };
        assert_eq!(*setup.store.load(report.id).unwrap().parts[0].bytes, [5; 8]);
    }
    assert!(setup.thread.shutdown(LONG));
}

#[test]
fn a_newer_state_takes_the_place_of_one_that_waits() {
    let setup = setup(8);
    let open = hold(&setup);
    assert_eq!(setup.thread.submit(state("a", 5, None)), Submitted::Queued);
    assert_eq!(setup.thread.submit(state("a", 6, None)), Submitted::Replaced);
    assert!(matches!(setup.outcomes.recv().unwrap(), (session, SaveOutcome::Superseded) if session == "a"));
    open.send(()).unwrap();
    assert!(setup.thread.shutdown(LONG));
    let lengths: Vec<_> = setup.store.list().iter().map(|info| info.tokens).collect();
    assert_eq!(lengths.len(), 2);
    assert!(lengths.contains(&6) && !lengths.contains(&5));
}

#[test]
fn a_removed_session_does_not_come_back_through_a_save_that_waits() {
    let setup = setup(8);
    let open = hold(&setup);
    for session in ["a", "b"] {
        assert_eq!(setup.thread.submit(state(session, 5, None)), Submitted::Queued);
    }
    let (send, removed) = channel();
    setup.thread.remove_session("a", move |result| send.send(result.unwrap().states).unwrap());
    open.send(()).unwrap();
    assert_eq!(removed.recv().unwrap(), 0, "nothing of it was on the disk");
    assert!(setup.thread.shutdown(LONG));
    let outcomes: Vec<_> = setup.outcomes.try_iter().collect();
    assert!(matches!(&outcomes[0], (session, SaveOutcome::Removed) if session == "a"), "{outcomes:?}");
    let mut left: Vec<_> = setup.store.sessions().into_iter().map(|session| session.id).collect();
    left.sort();
    assert_eq!(left, ["b", "first"]);
}

#[test]
fn a_removal_waits_for_the_save_that_runs() {
    let setup = setup(8);
    let open = hold(&setup);
    let (send, removed) = channel();
    setup.thread.remove_session("first", move |result| send.send(result.unwrap().states).unwrap());
    assert!(removed.try_recv().is_err());
    open.send(()).unwrap();
    assert_eq!(removed.recv().unwrap(), 1);
    assert!(setup.thread.shutdown(LONG));
    assert!(setup.store.sessions().is_empty());
}

#[test]
fn a_branch_does_not_take_the_place_of_another() {
    let setup = setup(4);
    let open = hold(&setup);
    let branch =
        |last: u32| PendingState { tokens: [0, 1, last].into_iter().collect(), ..state("a", 3, None) };
    assert_eq!(setup.thread.submit(branch(7)), Submitted::Queued);
    assert_eq!(setup.thread.submit(branch(8)), Submitted::Queued);
    let longer = PendingState { tokens: [0, 1, 8, 9].into_iter().collect(), ..state("a", 3, None) };
    assert_eq!(setup.thread.submit(longer), Submitted::Replaced);
    open.send(()).unwrap();
    assert!(setup.thread.flush(Duration::from_secs(20)));
}

#[test]
fn a_full_queue_drops_the_oldest_and_never_blocks() {
    let setup = setup(2);
    let open = hold(&setup);
    let started = Instant::now();
    for session in ["a", "b"] {
        assert_eq!(setup.thread.submit(state(session, 5, None)), Submitted::Queued);
    }
    assert_eq!(setup.thread.submit(state("c", 5, None)), Submitted::Displaced);
    assert!(started.elapsed() < Duration::from_secs(5), "the thread is held up all the while");
    assert!(matches!(setup.outcomes.recv().unwrap(), (session, SaveOutcome::Dropped) if session == "a"));
    open.send(()).unwrap();
    assert!(setup.thread.shutdown(LONG));
    assert_eq!(setup.store.list().len(), 3);
}

#[test]
fn a_shutdown_keeps_its_deadline() {
    let setup = setup(8);
    let open = hold(&setup);
    setup.thread.submit(state("a", 5, None));
    let started = Instant::now();
    assert!(!setup.thread.shutdown(Duration::from_millis(100)));
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(matches!(setup.outcomes.recv().unwrap(), (session, SaveOutcome::Dropped) if session == "a"));
    open.send(()).unwrap();
}

#[test]
fn a_failed_save_is_reported_and_the_next_goes_on() {
    let setup = setup(8);
    let mut empty = state("empty", 1, None);
    empty.tokens = Arc::from([]);
    setup.thread.submit(empty);
    setup.thread.submit(state("a", 5, None));
    assert!(setup.thread.shutdown(LONG));
    let outcomes: Vec<_> = setup.outcomes.try_iter().collect();
    assert!(matches!(&outcomes[0], (session, SaveOutcome::Failed(_)) if session == "empty"));
    assert!(matches!(&outcomes[1], (session, SaveOutcome::Saved(_)) if session == "a"));
}
