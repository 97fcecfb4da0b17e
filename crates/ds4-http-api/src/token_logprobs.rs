//! Which tokens a piece of the answer's text came from.
//!
//! OpenAI reports log-probabilities of the tokens of the message's content. Text arrives later than its tokens (half
//! characters and possible stop strings are held back), and some tokens never become content: reasoning, markup, tool
//! calls, a stop string. So tokens wait here until their bytes appear in the content.

use std::collections::VecDeque;

use ds4_engine_api::TokenLogprobs;
use ds4_text::TextDelta;

/// Tokens whose text has not come out yet.
#[derive(Debug, Default)]
pub(crate) struct LogprobAligner {
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    /// `None` if a part of the token came out before, with its log-probability.
    logprobs: Option<TokenLogprobs>,
}

impl LogprobAligner {
    /// Adds the next token of the answer.
    pub(crate) fn push(&mut self, bytes: &[u8], logprobs: TokenLogprobs) {
        self.waiting.push_back(Waiting { bytes: bytes.to_vec(), logprobs: Some(logprobs) });
    }

    /// Takes the tokens that the content in `deltas` came from. Tokens before them are dropped.
    pub(crate) fn align(&mut self, deltas: &[TextDelta]) -> Vec<TokenLogprobs> {
        let mut found = Vec::new();
        for delta in deltas {
            match delta {
                TextDelta::Content(text) => self.take(text.as_bytes(), &mut found),
                TextDelta::Reasoning(text) => self.take(text.as_bytes(), &mut Vec::new()),
                TextDelta::ToolCall(_) => self.waiting.clear(),
            }
        }
        found
    }

    fn take(&mut self, text: &[u8], found: &mut Vec<TokenLogprobs>) {
        let all: Vec<u8> = self.waiting.iter().flat_map(|token| token.bytes.iter().copied()).collect();
        let start = all.windows(text.len().max(1)).position(|window| window == text);
        // Bytes that are no UTF-8 come out as replacement characters: the text is not found, and is all there is.
        let (start, end) = start.map_or((0, all.len()), |start| (start, start + text.len()));
        let mut at = 0;
        while at < end {
            let Some(mut token) = self.waiting.pop_front() else { return };
            let next = at + token.bytes.len();
            if next > start {
                found.extend(token.logprobs.take());
            }
            if next > end {
                token.bytes.drain(..end - at);
                self.waiting.push_front(token);
                return;
            }
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_engine_api::TokenLogprob;

    fn token(id: u32) -> TokenLogprobs {
        TokenLogprobs { chosen: TokenLogprob { id, logprob: -1.0 }, top: Vec::new() }
    }

    fn aligner(tokens: &[&[u8]]) -> LogprobAligner {
        let mut aligner = LogprobAligner::default();
        for (id, bytes) in tokens.iter().enumerate() {
            aligner.push(bytes, token(id as u32));
        }
        aligner
    }

    fn ids(logprobs: Vec<TokenLogprobs>) -> Vec<u32> {
        logprobs.iter().map(|token| token.chosen.id).collect()
    }

    fn content(text: &str) -> Vec<TextDelta> {
        vec![TextDelta::Content(text.to_owned())]
    }

    #[test]
    fn markup_and_stripped_space_before_the_content_are_dropped() {
        let mut aligner = aligner(&[b"</think>", b"\n\n", b"po", b"ng"]);
        assert_eq!(ids(aligner.align(&content("pong"))), [2, 3]);
    }

    #[test]
    fn a_token_that_comes_out_in_two_parts_counts_once() {
        let mut aligner = aligner(&[b"abS", b"x"]);
        assert_eq!(ids(aligner.align(&content("ab"))), [0]);
        assert_eq!(ids(aligner.align(&content("Sx"))), [1]);
    }

    #[test]
    fn tokens_of_a_character_come_with_it() {
        let lamp = "💡".as_bytes();
        let mut aligner = aligner(&[&lamp[..1], &lamp[1..3], &lamp[3..]]);
        assert_eq!(ids(aligner.align(&content("💡"))), [0, 1, 2]);
    }

    #[test]
    fn invalid_bytes_come_with_their_replacement() {
        let mut aligner = aligner(&[b"\xff", b"a"]);
        assert_eq!(ids(aligner.align(&content("\u{fffd}a"))), [0, 1]);
    }

    #[test]
    fn reasoning_and_the_text_of_calls_are_not_content() {
        let mut aligner = aligner(&[b"why", b"</think>", b"so"]);
        let deltas = [TextDelta::Reasoning("why".into()), TextDelta::Content("so".into())];
        assert_eq!(ids(aligner.align(&deltas)), [2]);
    }
}
