//! How requests that read their prompts and requests that answer share the passes.
//!
//! Both kinds get half of the time. A pass may do both, and then answers go on by a token while pieces of prompts are read. Such a
//! pass is long, and counts as reading. After it, passes that only answer follow until they have taken as much time. What a pass
//! reads is divided between prompts by their length.

use std::time::Duration;

/// How long a pass may take in which others wait for what is read: so long, or so many times as long as a pass that only
/// answers. A large model takes its time for a pass whatever it reads, and would read next to nothing otherwise.
const PATIENCE: Duration = Duration::from_millis(80);
const PATIENCE_PASSES: f64 = 4.0;

/// What passes so far have taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeShare {
    /// Seconds by which reading is ahead of answering.
    ahead: f64,
    /// Seconds of the latest pass that only answered.
    answering: f64,
}

/// Tokens of a prompt that are left to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// In all.
    pub(crate) all: usize,
    /// In the next pass, at most.
    pub(crate) now: usize,
}

impl TimeShare {
    /// Whether a pass beside answers may read.
    pub(crate) fn may_read(&self) -> bool {
        self.ahead <= 0.0
    }

    /// How long others may have to wait for what a pass reads.
    pub(crate) fn patience(&self) -> Duration {
        PATIENCE.max(Duration::from_secs_f64(PATIENCE_PASSES * self.answering))
    }

    /// Notes a pass of so many seconds. Where there was nothing to share, nobody is owed anything.
    pub(crate) fn note(&mut self, read: bool, answered: bool, seconds: f64) {
        if !read {
            self.answering = seconds;
        }
        self.ahead = match (read, answered) {
            (true, true) => self.ahead + seconds,
            (true, false) => 0.0,
            (false, _) => (self.ahead - seconds).max(0.0),
        };
    }
}

/// Divides the tokens that a pass may read between prompts of which so many are left, in the order in which they came.
///
/// The shortest come first: they are done soon, and the others hardly later. Only the oldest has a quarter for itself, so that
/// it comes to an end however many short ones follow it.
pub(crate) fn divide(tokens: usize, left: &[Left]) -> Vec<usize> {
    let mut shares = vec![0; left.len()];
    if tokens == 0 {
        return shares;
    }
    let mut rest = tokens;
    let mut give = |index: usize, most: usize| {
        let share = (left[index].now - shares[index]).min(most).min(rest);
        shares[index] += share;
        rest -= share;
    };
    if let Some(oldest) = left.iter().position(|left| left.now > 0) {
        give(oldest, tokens.div_ceil(4));
    }
    let mut order: Vec<usize> = (0..left.len()).collect();
    order.sort_by_key(|&index| left[index].all);
    order.into_iter().for_each(|index| give(index, usize::MAX));
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_get_half_of_the_time() {
        let (mut time, mut reading, mut answering) = (TimeShare::default(), 0.0, 0.0);
        for _ in 0..1000 {
            let read = time.may_read();
            let seconds = if read { 0.08 } else { 0.007 };
            *(if read { &mut reading } else { &mut answering }) += seconds;
            time.note(read, true, seconds);
        }
        let ratio: f64 = reading / answering;
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn who_waits_anyway_has_patience() {
        let mut time = TimeShare::default();
        time.note(false, true, 0.007);
        assert_eq!(time.patience(), PATIENCE);
        time.note(false, true, 0.1);
        time.note(true, true, 3.0);
        assert_eq!(time.patience(), Duration::from_millis(400));
    }

    #[test]
    fn a_prompt_that_was_read_alone_owes_nothing() {
        let mut time = TimeShare::default();
        time.note(true, false, 5.0);
        assert!(time.may_read());
    }

    #[test]
    fn short_prompts_come_first_and_the_oldest_goes_on() {
        let all = |tokens, left: &[usize]| {
            divide(tokens, &left.iter().map(|&left| Left { all: left, now: left }).collect::<Vec<_>>())
        };
        assert_eq!(all(64, &[0, 3000, 11, 3000]), [0, 53, 11, 0]);
        assert_eq!(all(64, &[3000, 50, 60]), [16, 48, 0]);
        assert_eq!(all(64, &[20, 0, 10]), [20, 0, 10]);
        assert_eq!(all(0, &[20]), [0]);
        // A long prompt stays a long one where a state is kept soon.
        let long = Left { all: 3000, now: 20 };
        assert_eq!(divide(64, &[long, long, Left { all: 250, now: 250 }]), [16, 0, 48]);
        assert!(divide(64, &[]).is_empty());
    }
}
