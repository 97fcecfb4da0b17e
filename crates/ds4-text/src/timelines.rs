//! The tokens that conversations really had, so that a prompt that renders to the same text gets the same ids.
//!
//! A sampled answer need not have the ids that its text would be encoded to, and a state stands for ids. So the ids of the
//! last requests are remembered; a new prompt takes those of the longest stretch whose text it repeats. The text decides:
//! added tokens are compared by id, what lies between them by its bytes. The ids change only up to a border of the
//! encoding (an added token), behind which the prompt's own ids go on, so that the prompt means the same as before.

use std::collections::VecDeque;

use crate::Tokenizer;

/// Timelines that are remembered, at most.
const MOST_TIMELINES: usize = 256;

/// Tokens of recent conversations, each a prompt and its answer.
#[derive(Clone, Debug)]
pub struct Timelines {
    /// The newest last.
    kept: VecDeque<Vec<u32>>,
    /// In all of them.
    tokens: usize,
    most_tokens: usize,
}

impl Default for Timelines {
    /// Room for 4 Mi tokens, 16 MiB.
    fn default() -> Self {
        Self::new(4 << 20)
    }
}

impl Timelines {
    /// Remembers at most `most_tokens` tokens.
    pub fn new(most_tokens: usize) -> Self {
        Self { kept: VecDeque::new(), tokens: 0, most_tokens }
    }

    /// Remembers a conversation: the ids of its prompt and those that were sampled. Shorter stretches of the same
    /// conversation are forgotten, and the oldest ones if there is no room.
    pub fn keep(&mut self, timeline: Vec<u32>) {
        self.kept.retain(|old| !timeline.starts_with(old));
        self.kept.push_back(timeline);
        self.tokens = self.kept.iter().map(Vec::len).sum();
        while self.tokens > self.most_tokens || self.kept.len() > MOST_TIMELINES {
            self.tokens -= self.kept.pop_front().map_or(0, |oldest| oldest.len());
        }
    }

    /// The ids of a prompt, with those of the remembered conversation whose text it repeats the longest.
    pub fn apply(&self, tokenizer: &Tokenizer, prompt: Vec<u32>) -> Vec<u32> {
        let shared = self.kept.iter().map(|timeline| (timeline, shared(tokenizer, timeline, &prompt)));
        match shared.max_by_key(|(_, shared)| shared.of_prompt) {
            Some((timeline, shared)) if shared.of_prompt > 0 => {
                let mut ids = timeline[..shared.of_timeline].to_vec();
                ids.extend_from_slice(&prompt[shared.of_prompt..]);
                ids
            }
            _ => prompt,
        }
    }
}

/// How many tokens of either side have the same text, up to the last border.
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    of_timeline: usize,
    of_prompt: usize,
}

fn shared(tokenizer: &Tokenizer, timeline: &[u32], prompt: &[u32]) -> Shared {
    let mut timeline = Reader { tokenizer, ids: timeline, at: 0, read: 0 };
    let mut prompt = Reader { tokenizer, ids: prompt, at: 0, read: 0 };
    let mut shared = Shared::default();
    loop {
        match (timeline.unit(), prompt.unit()) {
            (Some(Unit::Whole(a)), Some(Unit::Whole(b))) if a == b => {
                timeline.skip_token();
                prompt.skip_token();
                shared = Shared { of_timeline: timeline.at, of_prompt: prompt.at };
            }
            (Some(Unit::Bytes(a)), Some(Unit::Bytes(b))) => {
                let length = a.len().min(b.len());
                if a[..length] != b[..length] {
                    return shared;
                }
                timeline.skip_bytes(length, a.len());
                prompt.skip_bytes(length, b.len());
            }
            // The conversation ends where a text of the prompt ends: an answer that was stopped, or is a token short.
            (None, None | Some(Unit::Whole(_))) => {
                return Shared { of_timeline: timeline.at, of_prompt: prompt.at };
            }
            _ => return shared,
        }
    }
}

/// What is compared.
enum Unit<'a> {
    /// An added token, or one without bytes.
    Whole(u32),
    /// What is left of an ordinary token.
    Bytes(&'a [u8]),
}

struct Reader<'a> {
    tokenizer: &'a Tokenizer,
    ids: &'a [u32],
    at: usize,
    /// Bytes of the token at `at` that were compared already.
    read: usize,
}

impl<'a> Reader<'a> {
    fn unit(&self) -> Option<Unit<'a>> {
        let id = *self.ids.get(self.at)?;
        let bytes = self.tokenizer.token_bytes(id).unwrap_or_default();
        let whole = bytes.is_empty() || self.tokenizer.added_tokens().contains_key(&id);
        Some(if whole { Unit::Whole(id) } else { Unit::Bytes(&bytes[self.read..]) })
    }

    fn skip_token(&mut self) {
        self.at += 1;
        self.read = 0;
    }

    fn skip_bytes(&mut self, count: usize, left: usize) {
        if count == left {
            self.skip_token();
        } else {
            self.read += count;
        }
    }
}
