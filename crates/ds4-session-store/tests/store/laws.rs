//! Any sequence of operations agrees with a list of what was saved; loads and saves at the same time disturb nobody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::states::{self, State};
use ds4_session_store::{MissReason, Store, StoreOptions, common_prefix};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Operation {
    Save(u64, usize),
    Remove(usize),
    RemoveSession(u64),
    Load(usize),
    Reopen,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        5 => (0..4u64, 1..80usize).prop_map(|(session, length)| Operation::Save(session, length)),
        1 => any::<usize>().prop_map(Operation::Remove),
        1 => (0..4u64).prop_map(Operation::RemoveSession),
        2 => any::<usize>().prop_map(Operation::Load),
        1 => Just(Operation::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_store_is_a_list_of_what_was_saved(
        operations in prop::collection::vec(operation(), 1..20),
        asked in (0..4u64, 1..90usize),
    ) {
        let dir = tempfile::TempDir::new().unwrap();
        let mut store = Store::open(dir.path(), states::options()).unwrap();
        let mut plain = BTreeMap::new();
        for operation in operations {
            match operation {
                Operation::Save(session, length) => {
                    let report = State::new(session, length).save(&store).unwrap();
                    prop_assert_eq!(report.already_stored, plain.contains_key(&(session, length)));
                    plain.insert((session, length), report.id);
                }
                Operation::Remove(n) => {
                    let Some(key) = plain.keys().nth(n % plain.len().max(1)).copied() else { continue };
                    prop_assert_eq!(store.remove(plain.remove(&key).unwrap()).unwrap().states, 1);
                }
                Operation::RemoveSession(session) => {
                    let before = plain.len();
                    plain.retain(|(of, _), _| *of != session);
                    let removed = store.remove_session(&format!("session {session}")).unwrap();
                    prop_assert_eq!(removed.states, before - plain.len());
                }
                Operation::Load(n) => {
                    let Some((key, id)) = plain.iter().nth(n % plain.len().max(1)) else { continue };
                    prop_assert!(State::new(key.0, key.1).is(&store.load(*id).unwrap()));
                }
                Operation::Reopen => {
                    drop(store);
                    store = Store::open(dir.path(), states::options()).unwrap();
                    prop_assert_eq!(store.stats().quarantined, []);
                    prop_assert_eq!(store.stats().orphans_removed, 0);
                }
            }
            prop_assert_eq!(store.list().len(), plain.len());
        }
        let prompt = State::new(asked.0, asked.1).tokens;
        let lookup = store.lookup(&states::fingerprints(), &prompt);
        let states = plain.keys().map(|(session, length)| State::new(*session, *length).tokens);
        let mut fit: Vec<usize> =
            states.filter(|tokens| tokens.len() < prompt.len() && prompt.starts_with(tokens)).map(|t| t.len()).collect();
        fit.sort_unstable_by_key(|tokens| std::cmp::Reverse(*tokens));
        prop_assert_eq!(lookup.hits.iter().map(|hit| hit.tokens).collect::<Vec<_>>(), fit);
        prop_assert_eq!(lookup.miss.is_some(), lookup.hits.is_empty());
        if let Some(MissReason::DivergedAt { token } | MissReason::NoSnapshotBefore { token }) = lookup.miss {
            let states = plain.keys().map(|(session, length)| State::new(*session, *length).tokens);
            prop_assert_eq!(Some(token), states.map(|tokens| common_prefix(&tokens, &prompt)).max());
        }
    }
}

/// A budget for a few states, two threads that save and so evict, two that load whatever is found: a load gives the
/// state that was asked for or a miss because it was evicted, and nothing is ever taken for damaged.
#[test]
fn loads_and_evictions_at_the_same_time() {
    let dir = tempfile::TempDir::new().unwrap();
    let options = StoreOptions { bytes: 60_000, ..states::options() };
    let store = Arc::new(Store::open(dir.path(), options).unwrap());
    let done = AtomicBool::new(false);
    let (loaded, missed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let savers: Vec<_> = (0..2u64)
            .map(|thread| {
                let store = Arc::clone(&store);
                scope.spawn(move || {
                    for i in 0..60 {
                        State::new(thread * 10 + i % 7, 30 + (i * 37 % 90) as usize).save(&store).unwrap();
                    }
                })
            })
            .collect();
        for thread in 0..2usize {
            let (store, done, loaded, missed) = (&store, &done, &loaded, &missed);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    for info in store.list().iter().filter(|info| info.tokens > 0).skip(thread) {
                        match store.load(info.id) {
                            Ok(state) => {
                                let session =
                                    info.session.as_ref().unwrap().strip_prefix("session ").unwrap();
                                assert!(State::new(session.parse().unwrap(), info.tokens).is(&state));
                                loaded.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(miss) => {
                                assert_eq!(miss.reason, MissReason::Evicted, "{miss}");
                                missed.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
            });
        }
        savers.into_iter().for_each(|saver| saver.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    let stats = store.stats();
    println!("{loaded:?} loaded, {missed:?} missed, {} evicted", stats.evicted);
    assert!(loaded.into_inner() > 0 && stats.evicted > 0);
    assert_eq!(stats.quarantined, []);
    assert!(stats.bytes <= 60_000);
}
