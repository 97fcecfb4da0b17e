//! Tokens of the last states that are gone, so that a miss can say that there was one and what became of it.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;

use crate::prefix_index::PrefixIndex;

/// Names of states that are gone, with their tokens and whatever else is to be known of them.
#[derive(Debug)]
pub(crate) struct Gone<Id, Why> {
    index: PrefixIndex<Id>,
    /// The longest gone first.
    order: VecDeque<(Id, Why)>,
    most: usize,
}

impl<Id: Copy + Eq + Hash, Why> Gone<Id, Why> {
    /// Remembers at most `most` states.
    pub(crate) fn new(most: usize) -> Self {
        Self { index: PrefixIndex::new(), order: VecDeque::new(), most }
    }

    pub(crate) fn add(&mut self, id: Id, tokens: Arc<[u32]>, why: Why) {
        self.forget(id);
        self.index.insert(id, tokens);
        self.order.push_back((id, why));
        if self.order.len() > self.most
            && let Some((oldest, _)) = self.order.pop_front()
        {
            self.index.remove(oldest);
        }
    }

    /// It is back.
    pub(crate) fn forget(&mut self, id: Id) {
        if self.index.remove(id) {
            self.order.retain(|(other, _)| *other != id);
        }
    }

    /// What is known of those that a prompt could have started from, the longest first.
    pub(crate) fn candidates<'a>(&'a self, prompt: &'a [u32]) -> impl Iterator<Item = &'a Why> {
        let why = |id| self.order.iter().find(|(other, _)| *other == id).map(|(_, why)| why);
        self.index.candidates(prompt).filter_map(move |(id, _)| why(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(count: u32) -> Arc<[u32]> {
        (0..count).collect()
    }

    #[test]
    fn the_oldest_are_forgotten_and_those_that_are_back() {
        let mut gone = Gone::new(2);
        for id in 1..=3u32 {
            gone.add(id, tokens(id), id);
        }
        let known = |gone: &Gone<u32, u32>| gone.candidates(&tokens(9)).copied().collect::<Vec<_>>();
        assert_eq!(known(&gone), [3, 2]);
        gone.forget(3);
        assert_eq!(known(&gone), [2]);
    }

    #[test]
    fn what_goes_again_is_known_once_with_its_last_reason() {
        let mut gone = Gone::new(2);
        gone.add(1, tokens(4), "evicted");
        gone.add(1, tokens(4), "corrupt");
        assert_eq!(gone.candidates(&tokens(5)).collect::<Vec<_>>(), [&"corrupt"]);
        assert_eq!(gone.candidates(&tokens(4)).next(), None, "a token is left to run");
    }
}
