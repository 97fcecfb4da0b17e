//! Who works next. Pure: knows numbers of requests, no model and no channel.
//!
//! Requests run one at a time, in the order in which they came.

use std::collections::VecDeque;

/// The waiting requests and the one that runs, by any key.
#[derive(Debug)]
pub(crate) struct Schedule<K> {
    running: Option<K>,
    waiting: VecDeque<K>,
}

impl<K> Default for Schedule<K> {
    fn default() -> Self {
        Self { running: None, waiting: VecDeque::new() }
    }
}

impl<K> Schedule<K> {
    /// Adds a request behind all others.
    pub(crate) fn add(&mut self, request: K) {
        self.waiting.push_back(request);
    }

    /// How many would run before a request that is added now.
    pub(crate) fn ahead_of_new(&self) -> usize {
        self.waiting.len() + usize::from(self.running.is_some())
    }

    /// The request to work on, and whether its turn begins just now. `None` if there is nothing to do.
    pub(crate) fn next(&mut self) -> Option<(&mut K, bool)> {
        let begins = self.running.is_none();
        if begins {
            self.running = self.waiting.pop_front();
        }
        self.running.as_mut().map(|request| (request, begins))
    }

    /// The running request has ended.
    pub(crate) fn end(&mut self) -> Option<K> {
        self.running.take()
    }

    /// Takes out the waiting requests for which `gone` is true.
    pub(crate) fn remove_waiting(&mut self, mut gone: impl FnMut(&K) -> bool) -> Vec<K> {
        let (removed, kept) =
            std::mem::take(&mut self.waiting).into_iter().partition(|request| gone(request));
        self.waiting = kept;
        Vec::from_iter::<VecDeque<K>>(removed)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_run_in_their_order_one_at_a_time() {
        let mut schedule = Schedule::default();
        schedule.add('a');
        assert_eq!(schedule.ahead_of_new(), 1);
        schedule.add('b');
        assert_eq!(schedule.next().map(|(&mut k, begins)| (k, begins)), Some(('a', true)));
        assert_eq!(schedule.next().map(|(&mut k, begins)| (k, begins)), Some(('a', false)));
        assert_eq!(schedule.ahead_of_new(), 2);
        schedule.add('c');
        assert_eq!(schedule.end(), Some('a'));
        assert_eq!(schedule.next().map(|(&mut k, begins)| (k, begins)), Some(('b', true)));
        assert_eq!(schedule.waiting(), 1);
    }

    #[test]
    fn a_waiting_request_can_leave() {
        let mut schedule = Schedule::default();
        for request in ['a', 'b', 'c'] {
            schedule.add(request);
        }
        assert_eq!(schedule.remove_waiting(|&k| k == 'b'), ['b']);
        assert_eq!(schedule.next().map(|(&mut k, _)| k), Some('a'));
        schedule.end();
        assert_eq!(schedule.next().map(|(&mut k, _)| k), Some('c'));
        schedule.end();
        assert!(schedule.is_idle());
    }
}
