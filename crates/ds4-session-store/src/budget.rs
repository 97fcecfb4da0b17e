//! A byte budget over entries that share storage: who fits, who has to go, and which storage becomes free thereby.
//!
//! Used for snapshots in memory (storage is a buffer) and for checkpoints on disk (storage is a file). Storage that
//! several entries share counts once. The budget decides and keeps the books; freeing is the caller's business.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use thiserror::Error;

/// Why an entry was not admitted. Nothing was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// It would not fit if it were alone.
    #[error("{bytes} bytes are more than the budget of {limit} bytes")]
    LargerThanBudget {
        /// Of the entry.
        bytes: u64,
        /// The budget.
        limit: u64,
    },
    /// It would not fit beside what is in use.
    #[error("{bytes} bytes do not fit into the budget of {limit} bytes, of which {held} bytes are in use")]
    InUse {
        /// Of the entry, without what it shares with entries in use.
        bytes: u64,
        /// The budget.
        limit: u64,
        /// Bytes of entries in use.
        held: u64,
    },
}

/// An entry that had to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted<K, S> {
    /// The entry.
    pub key: K,
    /// Storage that nobody uses any more.
    pub freed: Vec<S>,
}

/// What an admission led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted<K, S> {
    /// Entries that had to go, in the order of their going.
    pub evicted: Vec<Evicted<K, S>>,
    /// Storage of the replaced entry of the same key that nobody uses any more.
    pub replaced: Vec<S>,
}

/// What is known of an entry when it is asked how much it is worth.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Bytes that would become free without it.
    pub exclusive_bytes: u64,
    /// All of its bytes.
    pub bytes: u64,
    /// Position in the order of uses; higher is later.
    pub last_used: u64,
}

#[derive(Debug)]
struct Entry<S> {
    /// Each storage once.
    storages: Vec<S>,
    number: u64,
    usage: Usage,
    pins: usize,
}

#[derive(Debug)]
struct Storage {
    bytes: u64,
    users: usize,
    /// Numbers of all users, combined by exclusive or: with one user left it is that one's number, so nobody needs to
    /// be searched for when storage stops or starts being shared.
    user_numbers: u64,
}

/// The books. `K` names an entry, `S` a storage.
#[derive(Debug)]
pub struct Budget<K, S> {
    limit: u64,
    used: u64,
    entries: HashMap<K, Entry<S>>,
    keys: HashMap<u64, K>,
    storages: HashMap<S, Storage>,
    next: u64,
}

impl<K: Clone + Eq + Hash, S: Clone + Eq + Hash> Budget<K, S> {
    /// An empty budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            used: 0,
            entries: HashMap::new(),
            keys: HashMap::new(),
            storages: HashMap::new(),
            next: 1,
        }
    }

    /// Bytes that may be used.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Changes the limit. Nothing is evicted before the next [`Budget::admit`] or [`Budget::shrink`].
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Bytes in use; shared storage counts once.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether some entry uses this storage.
    pub fn holds(&self, storage: &S) -> bool {
        self.storages.contains_key(storage)
    }

    /// The entries that use this storage, in no order.
    pub fn users(&self, storage: &S) -> Vec<K> {
        let users = self.entries.iter().filter(|(_, entry)| entry.storages.contains(storage));
        users.map(|(key, _)| key.clone()).collect()
    }

    /// The storages of an entry with their bytes, as they were given, each once.
    pub fn storages(&self, key: &K) -> Option<Vec<(S, u64)>> {
        let names = &self.entries.get(key)?.storages;
        let with_bytes = |name: &S| Some((name.clone(), self.storages.get(name)?.bytes));
        Some(names.iter().filter_map(with_bytes).collect())
    }

    /// What is known of an entry.
    pub fn usage(&self, key: &K) -> Option<Usage> {
        self.entries.get(key).map(|entry| entry.usage)
    }

    /// Bytes that would become free without all of these entries, each given once.
    pub fn bytes_of<'a>(&self, keys: impl IntoIterator<Item = &'a K>) -> u64
    where
        K: 'a,
    {
        let mut users: HashMap<&S, usize> = HashMap::new();
        let entries = keys.into_iter().filter_map(|key| self.entries.get(key));
        entries.flat_map(|entry| &entry.storages).for_each(|name| *users.entry(name).or_default() += 1);
        let alone = |(name, users)| self.storages.get(name).filter(|storage| storage.users == users);
        users.into_iter().filter_map(alone).map(|storage| storage.bytes).sum()
    }

    /// Notes a use.
    pub fn touch(&mut self, key: &K) {
        self.next += 1;
        let now = self.next;
        if let Some(entry) = self.entries.get_mut(key) {
            entry.usage.last_used = now;
        }
    }

    /// An entry with a pin is never evicted. Pins are counted.
    pub fn pin(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.pins += 1;
        }
    }

    /// Takes one pin back.
    pub fn unpin(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.pins = entry.pins.saturating_sub(1);
        }
    }

    /// Adds an entry and evicts others until everything fits: those of the lowest rank first, the longest unused of
    /// equals, never one with a pin and never the new one. An entry of the same key is replaced.
    ///
    /// A refused entry changes nothing. The storage of an entry may be given several times.
    pub fn admit<R: PartialOrd>(
        &mut self,
        key: K,
        storages: &[(S, u64)],
        rank: impl Fn(&K, &Usage) -> R,
    ) -> Result<Admitted<K, S>, Refused> {
        self.check(&key, storages)?;
        let pins = self.entries.get(&key).map_or(0, |entry| entry.pins);
        let old = self.remove(&key).unwrap_or_default();
        // The extra pin protects the new entry from its own admission.
        self.add(key.clone(), storages, pins + 1);
        let evicted = self.shrink(rank);
        self.unpin(&key);
        let replaced = old.into_iter().filter(|storage| !self.holds(storage)).collect();
        Ok(Admitted { evicted, replaced })
    }

    /// Enters an entry whatever the limit: one that is there already.
    pub fn restore(&mut self, key: K, storages: &[(S, u64)]) {
        self.remove(&key);
        self.add(key, storages, 0);
    }

    /// Evicts until the limit is kept or only entries with pins are left.
    pub fn shrink<R: PartialOrd>(&mut self, rank: impl Fn(&K, &Usage) -> R) -> Vec<Evicted<K, S>> {
        let mut evicted = Vec::new();
        while self.used > self.limit {
            let Some(key) = self.lowest(&rank) else { break };
            let freed = self.remove(&key).unwrap_or_default();
            evicted.push(Evicted { key, freed });
        }
        evicted
    }

    /// Removes an entry, pinned or not; `None` if it is not there. Returns the storage that nobody uses any more.
    pub fn remove(&mut self, key: &K) -> Option<Vec<S>> {
        let entry = self.entries.remove(key)?;
        self.keys.remove(&entry.number);
        let mut freed = Vec::new();
        for name in entry.storages {
            let Some(storage) = self.storages.get_mut(&name) else { continue };
            storage.users -= 1;
            storage.user_numbers ^= entry.number;
            match storage.users {
                0 => {
                    self.used -= storage.bytes;
                    self.storages.remove(&name);
                    freed.push(name);
                }
                1 => {
                    let (bytes, number) = (storage.bytes, storage.user_numbers);
                    if let Some(usage) = self.usage_of(number) {
                        usage.exclusive_bytes += bytes;
                    }
                }
                _ => {}
            }
        }
        Some(freed)
    }

    fn add(&mut self, key: K, storages: &[(S, u64)], pins: usize) {
        self.next += 1;
        let number = self.next;
        let mut usage = Usage { exclusive_bytes: 0, bytes: 0, last_used: number };
        let mut names = Vec::with_capacity(storages.len());
        for (name, bytes) in once_each(storages) {
            let storage =
                self.storages.entry(name.clone()).or_insert(Storage { bytes, users: 0, user_numbers: 0 });
            let (bytes, users, before) = (storage.bytes, storage.users, storage.user_numbers);
            storage.users += 1;
            storage.user_numbers ^= number;
            usage.bytes += bytes;
            match users {
                0 => {
                    self.used += bytes;
                    usage.exclusive_bytes += bytes;
                }
                1 => {
                    if let Some(other) = self.usage_of(before) {
                        other.exclusive_bytes -= bytes;
                    }
                }
                _ => {}
            }
            names.push(name);
        }
        self.keys.insert(number, key.clone());
        self.entries.insert(key, Entry { storages: names, number, usage, pins });
    }

    fn usage_of(&mut self, number: u64) -> Option<&mut Usage> {
        let key = self.keys.get(&number)?;
        self.entries.get_mut(key).map(|entry| &mut entry.usage)
    }

    /// Whether the entry fits beside everything that must stay.
    fn check(&self, key: &K, storages: &[(S, u64)]) -> Result<(), Refused> {
        let limit = self.limit;
        let alone: u64 = once_each(storages).map(|(_, bytes)| bytes).sum();
        if alone > limit {
            return Err(Refused::LargerThanBudget { bytes: alone, limit });
        }
        let pinned = self.entries.iter().filter(|(other, entry)| entry.pins > 0 && *other != key);
        let held: HashSet<&S> = pinned.flat_map(|(_, entry)| &entry.storages).collect();
        let held_bytes: u64 =
            held.iter().filter_map(|name| self.storages.get(*name)).map(|storage| storage.bytes).sum();
        let bytes: u64 =
            once_each(storages).filter(|(name, _)| !held.contains(name)).map(|(_, bytes)| bytes).sum();
        if held_bytes.saturating_add(bytes) > limit && bytes > 0 {
            return Err(Refused::InUse { bytes, limit, held: held_bytes });
        }
        Ok(())
    }

    fn lowest<R: PartialOrd>(&self, rank: &impl Fn(&K, &Usage) -> R) -> Option<K> {
        let free = self.entries.iter().filter(|(_, entry)| entry.pins == 0);
        let ranked = free.map(|(key, entry)| (rank(key, &entry.usage), entry.usage.last_used, key));
        let lower = |a: &(R, u64, &K), b: &(R, u64, &K)| (&a.0, a.1).partial_cmp(&(&b.0, b.1));
        ranked.min_by(|a, b| lower(a, b).unwrap_or(std::cmp::Ordering::Equal)).map(|(_, _, key)| key.clone())
    }
}

/// Storages without repetitions.
fn once_each<S: Clone + Eq + Hash>(storages: &[(S, u64)]) -> impl Iterator<Item = (S, u64)> {
    let mut seen = HashSet::new();
    storages.iter().filter(move |(name, _)| seen.insert(name)).cloned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All ranks equal: least recently used goes first.
    fn lru(_: &u8, _: &Usage) -> u8 {
        0
    }

    fn keys(admitted: &Admitted<u8, char>) -> Vec<u8> {
        admitted.evicted.iter().map(|evicted| evicted.key).collect()
    }

    #[test]
    fn the_longest_unused_goes_first() {
        let mut budget = Budget::new(30);
        for (key, storage) in [(1, 'a'), (2, 'b'), (3, 'c')] {
            assert!(budget.admit(key, &[(storage, 10)], lru).unwrap().evicted.is_empty());
        }
        budget.touch(&1);
        let admitted = budget.admit(4, &[('d', 15)], lru).unwrap();
        assert_eq!(keys(&admitted), [2, 3]);
        assert_eq!(budget.used(), 25);
    }

    #[test]
    fn the_lowest_rank_goes_first() {
        let mut budget = Budget::new(20);
        budget.admit(1, &[('a', 10)], lru).unwrap();
        budget.admit(2, &[('b', 10)], lru).unwrap();
        let rank = |key: &u8, _: &Usage| -f64::from(*key);
        assert_eq!(keys(&budget.admit(3, &[('c', 10)], rank).unwrap()), [2]);
    }

    #[test]
    fn shared_storage_counts_once_and_outlives_an_eviction() {
        let mut budget = Budget::new(25);
        budget.admit(1, &[('a', 10), ('b', 5)], lru).unwrap();
        budget.admit(2, &[('a', 10), ('c', 5)], lru).unwrap();
        assert_eq!(budget.used(), 20);
        assert_eq!(budget.usage(&1).unwrap().exclusive_bytes, 5);
        let admitted = budget.admit(3, &[('a', 10), ('d', 10)], lru).unwrap();
        assert_eq!(admitted.evicted, [Evicted { key: 1, freed: vec!['b'] }]);
        assert_eq!(budget.used(), 25);
    }

    #[test]
    fn what_is_too_large_is_refused_before_anything_goes() {
        let mut budget = Budget::new(20);
        budget.admit(1, &[('a', 20)], lru).unwrap();
        assert_eq!(
            budget.admit(2, &[('b', 21)], lru),
            Err(Refused::LargerThanBudget { bytes: 21, limit: 20 })
        );
        assert_eq!((budget.len(), budget.used()), (1, 20));
    }

    #[test]
    fn what_is_in_use_stays() {
        let mut budget = Budget::new(20);
        budget.admit(1, &[('a', 15)], lru).unwrap();
        budget.pin(&1);
        let refused = budget.admit(2, &[('b', 10)], lru);
        assert_eq!(refused, Err(Refused::InUse { bytes: 10, limit: 20, held: 15 }));
        budget.unpin(&1);
        assert_eq!(keys(&budget.admit(2, &[('b', 10)], lru).unwrap()), [1]);
    }

    #[test]
    fn a_replaced_entry_frees_what_it_does_not_keep() {
        let mut budget = Budget::new(30);
        budget.admit(1, &[('a', 10), ('b', 10)], lru).unwrap();
        let admitted = budget.admit(1, &[('a', 10), ('c', 5)], lru).unwrap();
        assert_eq!(admitted, Admitted { evicted: vec![], replaced: vec!['b'] });
        assert_eq!(budget.used(), 15);
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Admit(u8, Vec<u8>),
        Remove(u8),
        Touch(u8),
        Pin(u8),
        Unpin(u8),
        Limit(u64),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        let key = 0..8u8;
        prop_oneof![
            6 => (key.clone(), prop::collection::vec(0..12u8, 0..5)).prop_map(|(k, s)| Operation::Admit(k, s)),
            1 => key.clone().prop_map(Operation::Remove),
            1 => key.clone().prop_map(Operation::Touch),
            1 => key.clone().prop_map(Operation::Pin),
            1 => key.prop_map(Operation::Unpin),
            1 => (0..80u64).prop_map(Operation::Limit),
        ]
    }

    /// Entries as they are, with their pins; everything else is computed anew.
    type Plain = HashMap<u8, (Vec<u8>, usize)>;

    fn bytes_of<'a>(lists: impl Iterator<Item = &'a Vec<u8>>) -> u64 {
        let all: HashSet<u8> = lists.flatten().copied().collect();
        all.into_iter().map(size).sum()
    }

    fn size(storage: u8) -> u64 {
        u64::from(storage) + 1
    }

    fn with_sizes(list: &[u8]) -> Vec<(u8, u64)> {
        list.iter().map(|storage| (*storage, size(*storage))).collect()
    }

    proptest! {
        #[test]
        fn the_books_agree_with_a_recount(operations in prop::collection::vec(operation(), 1..60)) {
            let mut budget: Budget<u8, u8> = Budget::new(40);
            let mut plain = Plain::new();
            for operation in operations {
                match operation {
                    Operation::Admit(key, list) => {
                        let before = plain.clone();
                        let pins = plain.get(&key).map_or(0, |(_, pins)| *pins);
                        match budget.admit(key, &with_sizes(&list), lru) {
                            Ok(admitted) => {
                                plain.insert(key, (list, pins));
                                for evicted in &admitted.evicted {
                                    prop_assert_ne!(evicted.key, key);
                                    let (_, pins) = plain.remove(&evicted.key).unwrap();
                                    prop_assert_eq!(pins, 0, "something in use was evicted");
                                }
                                let freed = admitted.evicted.iter().flat_map(|e| &e.freed).chain(&admitted.replaced);
                                for storage in freed {
                                    prop_assert!(!plain.values().any(|(list, _)| list.contains(storage)));
                                }
                                let pinned = plain.iter().filter(|(k, (_, pins))| *pins > 0 || **k == key);
                                let must_stay = bytes_of(pinned.map(|(_, (list, _))| list));
                                prop_assert!(budget.used() <= budget.limit().max(must_stay));
                            }
                            Err(_) => {
                                let pinned = before.iter().filter(|(k, (_, pins))| *pins > 0 && **k != key);
                                let held = bytes_of(pinned.map(|(_, (list, _))| list).chain([&list]));
                                prop_assert!(held > budget.limit(), "refused although it fits");
                            }
                        }
                    }
                    Operation::Remove(key) => {
                        prop_assert_eq!(budget.remove(&key).is_some(), plain.remove(&key).is_some());
                    }
                    Operation::Touch(key) => budget.touch(&key),
                    Operation::Pin(key) => {
                        budget.pin(&key);
                        plain.entry(key).and_modify(|(_, pins)| *pins += 1);
                    }
                    Operation::Unpin(key) => {
                        budget.unpin(&key);
                        plain.entry(key).and_modify(|(_, pins)| *pins = pins.saturating_sub(1));
                    }
                    Operation::Limit(limit) => budget.set_limit(limit),
                }
                let (some, rest): (Vec<u8>, Vec<u8>) = plain.keys().partition(|key| *key % 2 == 0);
                let left = bytes_of(rest.iter().map(|key| &plain[key].0));
                prop_assert_eq!(budget.bytes_of(&some), budget.used() - left);
                prop_assert_eq!(budget.len(), plain.len());
                prop_assert_eq!(budget.used(), bytes_of(plain.values().map(|(list, _)| list)));
                for (key, (list, _)) in &plain {
                    let others = plain.iter().filter(|(other, _)| *other != key).map(|(_, (list, _))| list);
                    let without = bytes_of(others);
                    let usage = budget.usage(key).unwrap();
                    prop_assert_eq!(usage.exclusive_bytes, budget.used() - without);
                    prop_assert_eq!(usage.bytes, bytes_of([list].into_iter()));
                }
            }
        }
    }
}
