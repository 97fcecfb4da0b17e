//! Holds back the end of a text that a marker behind it would swallow. Templates put newlines between an answer and
//! the marker that follows; those are no part of the answer, but that is known only when the marker comes.

/// Holds whitespace at the end of a text until it is clear what follows.
pub(crate) struct HeldTail {
    held: String,
    limit: Limit,
}

/// How much is held.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// At most this many newlines.
    Newlines(usize),
    /// All whitespace: nothing has been shown since the last marker.
    Blank,
}

impl HeldTail {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { held: String::new(), limit }
    }

    /// Text that is certain to be shown. After the first one, [`Limit::Blank`] has done its work and becomes `then`.
    pub(crate) fn push(&mut self, text: &str, then: Limit) -> String {
        self.held.push_str(text);
        if let Limit::Blank = self.limit {
            if self.held.trim().is_empty() {
                return String::new();
            }
            self.limit = then;
        }
        let Limit::Newlines(limit) = self.limit else { return String::new() };
        let newlines = self.held.bytes().rev().take(limit).take_while(|&byte| byte == b'\n').count();
        let tail = self.held.split_off(self.held.len() - newlines);
        std::mem::replace(&mut self.held, tail)
    }

    /// No marker that swallows whitespace follows: what is held is to be shown, except for blank text after a marker.
    pub(crate) fn finish(&mut self) -> String {
        let held = self.take();
        match self.limit {
            Limit::Newlines(_) => held,
            Limit::Blank => String::new(),
        }
    }

    /// A marker follows: what is held is no part of the text.
    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    pub(crate) fn set_limit(&mut self, limit: Limit) {
        self.limit = limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_newlines_as_the_limit_are_held() {
        let limit = Limit::Newlines(2);
        let mut tail = HeldTail::new(limit);
        assert_eq!(tail.push("a\n\n\n", limit), "a\n");
        assert_eq!(tail.push("\n", limit), "\n");
        assert_eq!(tail.push(" b\n", limit), "\n\n b");
        assert_eq!(tail.finish(), "\n");
    }

    #[test]
    fn blank_text_is_held_until_something_is_in_it() {
        let mut tail = HeldTail::new(Limit::Blank);
        assert_eq!(tail.push("\n \n", Limit::Newlines(1)), "");
        assert_eq!(tail.finish(), "");
        assert_eq!(tail.push("\n \n", Limit::Newlines(1)), "");
        assert_eq!(tail.push("x\n", Limit::Newlines(1)), "\n \nx");
        assert_eq!(tail.take(), "\n");
    }
}
