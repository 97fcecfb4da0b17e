//! Who works. Pure: knows requests by any key, no model and no channel.
//!
//! A few requests run at a time, the others wait in the order in which they came.

use std::collections::VecDeque;

/// Whether a waiting request may begin beside those that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Begin,
    /// Not yet; those behind it may.
    LetOthersPass,
    /// Not yet, and nobody before it.
    Wait,
}

/// The waiting requests and those that run, by any key.
#[derive(Debug)]
pub(crate) struct Schedule<K> {
    /// How many may run at a time.
    places: usize,
    running: Vec<K>,
    waiting: VecDeque<K>,
}

impl<K> Schedule<K> {
    /// Nothing to do.
    pub(crate) fn new(places: usize) -> Self {
        Self { places, running: Vec::new(), waiting: VecDeque::new() }
    }

    /// Adds a request behind all others.
    pub(crate) fn add(&mut self, request: K) {
        self.waiting.push_back(request);
    }

    /// How many have to end before a request that is added now can run.
    pub(crate) fn ahead_of_new(&self) -> usize {
        (self.running.len() + self.waiting.len() + 1).saturating_sub(self.places)
    }

    /// Takes out the request that is to begin, if there is a place. The judge sees a waiting request and those that run.
    pub(crate) fn next_to_begin(&mut self, judge: impl Fn(&K, &[K]) -> Verdict) -> Option<K> {
        if self.running.len() >= self.places {
            return None;
        }
        let verdicts = self.waiting.iter().map(|request| judge(request, &self.running));
        let (first, verdict) = verdicts.enumerate().find(|(_, v)| *v != Verdict::LetOthersPass)?;
        if verdict == Verdict::Begin { self.waiting.remove(first) } else { None }
    }

    /// A request that was taken out runs from now on.
    pub(crate) fn run(&mut self, request: K) {
        self.running.push(request);
    }

    /// Those that run, in the order in which they began.
    pub(crate) fn running(&self) -> &[K] {
        &self.running
    }

    pub(crate) fn running_mut(&mut self) -> &mut [K] {
        &mut self.running
    }

    /// A running request has ended.
    pub(crate) fn end(&mut self, index: usize) -> K {
        self.running.remove(index)
    }

    /// Takes out the requests for which `gone` is true.
    pub(crate) fn remove(&mut self, gone: impl Fn(&K) -> bool) -> Vec<K> {
        let mut removed: Vec<K> = self.running.extract_if(.., |request| gone(request)).collect();
        while let Some(index) = self.waiting.iter().position(&gone) {
            removed.extend(self.waiting.remove(index));
        }
        removed
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(schedule: &mut Schedule<char>) -> Option<char> {
        let next = schedule.next_to_begin(|_, _| Verdict::Begin)?;
        schedule.run(next);
        Some(next)
    }

    #[test]
    fn requests_begin_in_their_order_as_places_are_free() {
        let mut schedule = Schedule::new(2);
        for (request, ahead) in [('a', 0), ('b', 0), ('c', 1), ('d', 2)] {
            assert_eq!(schedule.ahead_of_new(), ahead);
            schedule.add(request);
        }
        assert_eq!(
            [begin(&mut schedule), begin(&mut schedule), begin(&mut schedule)],
            [Some('a'), Some('b'), None]
        );
        assert_eq!((schedule.running().to_vec(), schedule.waiting()), (vec!['a', 'b'], 2));
        assert_eq!((schedule.end(0), begin(&mut schedule)), ('a', Some('c')));
        assert_eq!(schedule.running(), ['b', 'c']);
    }

    #[test]
    fn one_that_may_not_begin_yet_holds_up_nobody() {
        let mut schedule = Schedule::new(2);
        ['a', 'b', 'c'].into_iter().for_each(|request| schedule.add(request));
        begin(&mut schedule);
        let b_waits_for_a = |request: &char, running: &[char]| match request {
            'b' if running.contains(&'a') => Verdict::LetOthersPass,
            _ => Verdict::Begin,
        };
        assert_eq!(schedule.next_to_begin(b_waits_for_a), Some('c'));
        assert_eq!(schedule.next_to_begin(b_waits_for_a), None);
        schedule.end(0);
        assert_eq!(schedule.next_to_begin(b_waits_for_a), Some('b'));
    }

    #[test]
    fn one_that_must_wait_is_not_overtaken() {
        let mut schedule = Schedule::new(2);
        ['a', 'b'].into_iter().for_each(|request| schedule.add(request));
        let a_waits =
            |request: &char, _: &[char]| if *request == 'a' { Verdict::Wait } else { Verdict::Begin };
        assert_eq!(schedule.next_to_begin(a_waits), None);
        assert_eq!(schedule.next_to_begin(|_, _| Verdict::Begin), Some('a'));
    }

    #[test]
    fn requests_can_leave_whether_they_run_or_wait() {
        let mut schedule = Schedule::new(2);
        ['a', 'b', 'c', 'd'].into_iter().for_each(|request| schedule.add(request));
        while begin(&mut schedule).is_some() {}
        assert_eq!(schedule.remove(|&request| "ac".contains(request)), ['a', 'c']);
        assert_eq!((begin(&mut schedule), schedule.running()), (Some('d'), &['b', 'd'][..]));
        assert!(!schedule.is_idle());
    }
}
