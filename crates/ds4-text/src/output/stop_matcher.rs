//! Finds stop strings in text that comes in pieces, without showing any part of one.
//!
//! The rule does not depend on how the text was cut: the earliest position wins; at one position, the stop string that
//! was listed first. A match therefore waits while a stop string that would win over it can still come true.

/// Watches one text for stop strings.
pub(crate) struct StopMatcher {
    stops: Vec<String>,
    /// Text that may still turn out to be the start of a stop string.
    held: String,
}

/// Text to show, and the stop string that ended it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StopStep {
    pub(crate) text: String,
    pub(crate) stop: Option<String>,
}

/// What the text from some position on is to a list of stop strings.
enum Verdict<'a> {
    Stop(&'a str),
    Undecided,
    Nothing,
}

impl StopMatcher {
    /// Empty stop strings are ignored.
    pub(crate) fn new(stops: Vec<String>) -> Self {
        Self { stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(), held: String::new() }
    }

    pub(crate) fn push(&mut self, text: &str) -> StopStep {
        self.held.push_str(text);
        self.scan(false)
    }

    /// The text has ended: what was held is shown, unless a stop string was in it after all.
    pub(crate) fn finish(&mut self) -> StopStep {
        self.scan(true)
    }

    fn scan(&mut self, at_end: bool) -> StopStep {
        let mut cut = self.held.len();
        let mut stop = None;
        for (position, _) in self.held.char_indices() {
            match verdict(&self.stops, &self.held[position..], at_end) {
                Verdict::Nothing => continue,
                Verdict::Undecided => {}
                Verdict::Stop(found) => stop = Some(found.to_string()),
            }
            cut = position;
            break;
        }
        let rest = self.held.split_off(cut);
        let text = std::mem::replace(&mut self.held, rest);
        if stop.is_some() {
            self.held.clear();
        }
        StopStep { text, stop }
    }
}

fn verdict<'a>(stops: &'a [String], text: &str, at_end: bool) -> Verdict<'a> {
    for stop in stops {
        if text.starts_with(stop.as_str()) {
            return Verdict::Stop(stop);
        }
        if !at_end && stop.starts_with(text) {
            return Verdict::Undecided;
        }
    }
    Verdict::Nothing
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, Option<String>) {
        let mut matcher = StopMatcher::new(stops.iter().map(|stop| stop.to_string()).collect());
        let mut shown = Vec::new();
        for piece in pieces {
            let step = matcher.push(piece);
            shown.push(step.text);
            if step.stop.is_some() {
                return (shown, step.stop);
            }
        }
        let step = matcher.finish();
        shown.push(step.text);
        (shown, step.stop)
    }

    #[test]
    fn a_prefix_is_held_until_decided() {
        let shown = |pieces: &[&str]| run(&["END"], pieces);
        assert_eq!(shown(&["aE", "N", "x"]), (vec!["a".into(), "".into(), "ENx".into(), "".into()], None));
        assert_eq!(shown(&["aE", "ND", "x"]), (vec!["a".into(), "".into()], Some("END".into())));
        assert_eq!(shown(&["aEN"]), (vec!["a".into(), "EN".into()], None));
    }

    #[test]
    fn an_earlier_position_wins_even_if_it_is_longer() {
        assert_eq!(run(&["abcd", "c"], &["abc", "d"]).1.as_deref(), Some("abcd"));
        assert_eq!(run(&["abcd", "c"], &["abc", "x"]), (vec!["".into(), "ab".into()], Some("c".into())));
        assert_eq!(run(&["abcd", "c"], &["abc"]), (vec!["".into(), "ab".into()], Some("c".into())));
    }

    #[test]
    fn the_first_listed_wins_at_one_position() {
        assert_eq!(run(&["ab", "abc"], &["abc"]).1.as_deref(), Some("ab"));
        assert_eq!(run(&["abc", "ab"], &["ab", "c"]).1.as_deref(), Some("abc"));
        assert_eq!(run(&["abc", "ab", ""], &["ab", "x"]).1.as_deref(), Some("ab"));
    }

    /// The rule in its plainest form, on the whole text.
    fn oracle<'a>(stops: &'a [String], text: &str) -> (String, Option<&'a str>) {
        for (position, _) in text.char_indices() {
            for stop in stops.iter().filter(|stop| !stop.is_empty()) {
                if text[position..].starts_with(stop.as_str()) {
                    return (text[..position].to_string(), Some(stop));
                }
            }
        }
        (text.to_string(), None)
    }

    proptest! {
        #[test]
        fn any_cut_gives_what_the_whole_text_gives(
            stops in prop::collection::vec("[abé]{0,4}", 0..4),
            pieces in prop::collection::vec("[abcé]{0,5}", 0..8),
        ) {
            let stop_slices: Vec<&str> = stops.iter().map(String::as_str).collect();
            let piece_slices: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let (shown, stop) = run(&stop_slices, &piece_slices);
            let (text, expected) = oracle(&stops, &pieces.concat());
            prop_assert_eq!(shown.concat(), text);
            prop_assert_eq!(stop.as_deref(), expected);
        }

        #[test]
        fn only_what_can_become_a_stop_string_is_held(
            stops in prop::collection::vec("[ab]{1,4}", 0..3),
            text in "[abc]{0,12}",
        ) {
            let mut matcher = StopMatcher::new(stops.clone());
            let step = matcher.push(&text);
            if step.stop.is_none() && step.text.len() < text.len() {
                let held = &text[step.text.len()..];
                prop_assert!(stops.iter().any(|stop| stop.starts_with(held)), "{:?} is held", held);
            }
        }
    }
}
