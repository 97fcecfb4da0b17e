//! How the time is shared between requests that read their prompts and requests that answer: to halves.
//!
//! A pass may do both, and then answers go on by a token while a piece of a prompt is read. But such a pass is long. So after
//! it, passes that only answer follow until they have taken as much time.

/// What passes so far have taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    /// Seconds by which reading is ahead of answering.
    ahead: f64,
}

impl Turns {
    /// Whether a pass beside answers may read a piece of a prompt.
    pub(crate) fn may_read(&self) -> bool {
        self.ahead <= 0.0
    }

    /// Notes a pass of so many seconds. Where there was nothing to share, nobody is owed anything.
    pub(crate) fn note(&mut self, read: bool, answered: bool, seconds: f64) {
        self.ahead = match (read, answered) {
            (true, true) => self.ahead + seconds,
            (true, false) => 0.0,
            (false, _) => (self.ahead - seconds).max(0.0),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_get_half_of_the_time() {
        let (mut turns, mut reading, mut answering) = (Turns::default(), 0.0, 0.0);
        for _ in 0..1000 {
            let read = turns.may_read();
            let seconds = if read { 0.08 } else { 0.007 };
            *(if read { &mut reading } else { &mut answering }) += seconds;
            turns.note(read, true, seconds);
        }
        let ratio: f64 = reading / answering;
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_prompt_that_was_read_alone_owes_nothing() {
        let mut turns = Turns::default();
        turns.note(true, false, 5.0);
        assert!(turns.may_read());
    }
}
