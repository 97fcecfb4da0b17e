//! The longest stored prefix of a token list.
//!
//! A rolling hash over a fixed grid finds the entries that may fit in one pass over the query; each is then compared
//! token by token, so a collision costs time and never correctness. A second, ordered view finds the entry that shares
//! the most tokens with a query that nothing fits, because a miss has to say where it happened.
//!
//! Which of several candidates can be restored is the caller's business.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Bound;
use std::sync::Arc;

/// Tokens between two points at which the hash is looked up.
const GRID: usize = 64;

/// Stored token lists under ids.
#[derive(Debug)]
pub struct PrefixIndex<Id> {
    entries: HashMap<Id, Arc<[u32]>>,
    /// By length and hash of the entry's tokens up to its last grid point.
    by_hash: HashMap<(usize, u64), Vec<Id>>,
    /// In the order of token lists, where entries that share a beginning are neighbours.
    ordered: BTreeMap<Arc<[u32]>, Vec<Id>>,
}

/// How the entry that shares the most tokens with a query relates to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence<Id> {
    /// The entry.
    pub id: Id,
    /// Tokens that both begin with.
    pub common: usize,
    /// Whether the query has another token there. If not, the query ends inside the entry or with it, or the entry
    /// ends inside the query.
    pub differs: bool,
}

impl<Id> Default for PrefixIndex<Id> {
    fn default() -> Self {
        Self { entries: HashMap::new(), by_hash: HashMap::new(), ordered: BTreeMap::new() }
    }
}

impl<Id: Copy + Eq + Hash> PrefixIndex<Id> {
    /// An empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The tokens of an entry.
    pub fn tokens(&self, id: Id) -> Option<&Arc<[u32]>> {
        self.entries.get(&id)
    }

    /// Adds an entry. An older one of the same id is replaced.
    pub fn insert(&mut self, id: Id, tokens: Arc<[u32]>) {
        self.remove(id);
        self.by_hash.entry(hash_key(&tokens)).or_default().push(id);
        self.ordered.entry(Arc::clone(&tokens)).or_default().push(id);
        self.entries.insert(id, tokens);
    }

    /// Removes an entry; says whether it was there.
    pub fn remove(&mut self, id: Id) -> bool {
        let Some(tokens) = self.entries.remove(&id) else { return false };
        remove_from(&mut self.by_hash, &hash_key(&tokens), id);
        if let Some(ids) = self.ordered.get_mut(&tokens) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.ordered.remove(&tokens);
            }
        }
        true
    }

    /// Makes an entry the first choice among those with the same tokens.
    pub fn touch(&mut self, id: Id) {
        if let Some(tokens) = self.entries.get(&id).map(Arc::clone)
            && let Some(ids) = self.by_hash.get_mut(&hash_key(&tokens))
            && let Some(at) = ids.iter().position(|other| *other == id)
        {
            let id = ids.remove(at);
            ids.push(id);
        }
    }

    /// Every entry that `query` begins with and that is shorter than it, longest first; among equals the one touched
    /// or added last comes first. At least one token of the query is always left to run.
    pub fn candidates<'a>(&'a self, query: &'a [u32]) -> impl Iterator<Item = (Id, usize)> + 'a {
        let hashes = grid_hashes(query);
        let points = (0..hashes.len()).rev();
        points.flat_map(move |point| {
            let length = point * GRID;
            let Some(ids) = self.by_hash.get(&(length, hashes[point])) else { return Vec::new() };
            let fits = |id: &Id| {
                let tokens = self.entries.get(id)?;
                (tokens.len() < query.len() && query.starts_with(tokens)).then_some((*id, tokens.len()))
            };
            let mut found: Vec<_> = ids.iter().rev().filter_map(fits).collect();
            found.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
            found
        })
    }

    /// The entry that shares the most tokens with `query`, `None` if none shares any.
    pub fn divergence(&self, query: &[u32]) -> Option<Divergence<Id>> {
        // Whoever shares the most with the query is beside it in the order of token lists.
        let before = self.ordered.range::<[u32], _>((Bound::Unbounded, Bound::Included(query))).next_back();
        let after = self.ordered.range::<[u32], _>((Bound::Excluded(query), Bound::Unbounded)).next();
        let neighbours = before.into_iter().chain(after);
        let shared = neighbours.filter_map(|(tokens, ids)| {
            let common = common_prefix(tokens, query);
            let differs = common < tokens.len() && common < query.len();
            Some(Divergence { id: *ids.last()?, common, differs })
        });
        shared.filter(|divergence| divergence.common > 0).max_by_key(|divergence| divergence.common)
    }
}

/// Number of tokens that both lists begin with.
pub fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn remove_from<K: Eq + Hash, Id: Eq>(map: &mut HashMap<K, Vec<Id>>, key: &K, id: Id) {
    if let Some(ids) = map.get_mut(key) {
        ids.retain(|other| *other != id);
        if ids.is_empty() {
            map.remove(key);
        }
    }
}

fn hash_key(tokens: &[u32]) -> (usize, u64) {
    let length = tokens.len() / GRID * GRID;
    (length, tokens[..length].iter().fold(0, |hash, token| roll(hash, *token)))
}

/// The hash at every grid point of `tokens`, beginning with that of no tokens.
fn grid_hashes(tokens: &[u32]) -> Vec<u64> {
    let mut hash = 0;
    let mut hashes = vec![hash];
    for cell in tokens.chunks_exact(GRID) {
        hash = cell.iter().fold(hash, |hash, token| roll(hash, *token));
        hashes.push(hash);
    }
    hashes
}

/// One more token. The multiplier is the odd number next to 2^64 divided by the golden ratio.
fn roll(hash: u64, token: u32) -> u64 {
    (hash.rotate_left(23) ^ u64::from(token)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(lists: &[&[u32]]) -> PrefixIndex<usize> {
        let mut index = PrefixIndex::new();
        lists.iter().enumerate().for_each(|(id, tokens)| index.insert(id, Arc::from(*tokens)));
        index
    }

    fn found(index: &PrefixIndex<usize>, query: &[u32]) -> Vec<usize> {
        index.candidates(query).map(|(id, _)| id).collect()
    }

    #[test]
    fn candidates_come_longest_first_and_leave_a_token() {
        let index = index(&[&[1], &[1, 2, 3], &[1, 2], &[2]]);
        assert_eq!(found(&index, &[1, 2, 3, 4]), [1, 2, 0]);
        assert_eq!(found(&index, &[1, 2, 3]), [2, 0]);
        assert_eq!(found(&index, &[1]), [0usize; 0]);
    }

    #[test]
    fn a_touched_entry_is_the_first_among_equals() {
        let mut index = index(&[&[1, 2], &[1, 2]]);
        assert_eq!(found(&index, &[1, 2, 3]), [1, 0]);
        index.touch(0);
        assert_eq!(found(&index, &[1, 2, 3]), [0, 1]);
    }

    #[test]
    fn equal_hashes_are_not_trusted() {
        let mut index = index(&[&[7; 64]]);
        // What a collision would do: another list under the key of the first.
        let key = hash_key(&[7; 64]);
        index.entries.insert(9, Arc::from(vec![8; 64]));
        index.by_hash.get_mut(&key).unwrap().push(9);
        assert_eq!(found(&index, &[7; 65]), [0]);
    }

    #[test]
    fn divergence_tells_a_difference_from_an_end() {
        let index = index(&[&[1, 2, 3, 4], &[5, 6]]);
        assert_eq!(index.divergence(&[1, 2, 9]), Some(Divergence { id: 0, common: 2, differs: true }));
        assert_eq!(index.divergence(&[1, 2]), Some(Divergence { id: 0, common: 2, differs: false }));
        assert_eq!(index.divergence(&[5, 6, 7]), Some(Divergence { id: 1, common: 2, differs: false }));
        assert_eq!(index.divergence(&[9]), None);
    }

    /// Lists that share beginnings longer than the grid.
    fn tokens() -> impl Strategy<Value = Vec<u32>> {
        (prop::collection::vec(0..3u32, 0..6), 0..4usize).prop_map(|(tail, cells)| {
            let mut tokens: Vec<u32> = (0..cells * 50).map(|i| i as u32 / 50).collect();
            tokens.extend(tail);
            tokens
        })
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_a_plain_search(
            operations in prop::collection::vec((0..12usize, tokens(), 0..3u8), 1..40),
            query in tokens(),
        ) {
            let mut index = PrefixIndex::new();
            let mut plain: Vec<(usize, Vec<u32>)> = Vec::new();
            for (id, tokens, operation) in operations {
                if operation == 0 {
                    prop_assert_eq!(index.remove(id), plain.iter().any(|(other, _)| *other == id));
                    plain.retain(|(other, _)| *other != id);
                } else {
                    plain.retain(|(other, _)| *other != id);
                    index.insert(id, Arc::from(tokens.as_slice()));
                    plain.push((id, tokens));
                }
            }
            prop_assert_eq!(index.len(), plain.len());

            let mut expected: Vec<(usize, usize)> = plain.iter().rev()
                .filter(|(_, tokens)| tokens.len() < query.len() && query.starts_with(tokens))
                .map(|(id, tokens)| (*id, tokens.len())).collect();
            expected.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
            prop_assert_eq!(index.candidates(&query).collect::<Vec<_>>(), expected);

            let most = plain.iter().map(|(_, tokens)| common_prefix(tokens, &query)).max().unwrap_or(0);
            prop_assert_eq!(index.divergence(&query).map_or(0, |found| found.common), most);
        }
    }
}
