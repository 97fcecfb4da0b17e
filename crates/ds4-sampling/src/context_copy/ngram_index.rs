//! Where each n-gram of a prompt occurs, and the longest match for the end of a text.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// How many occurrences are compared, newest first.
const MAX_CANDIDATES: usize = 32;

/// An occurrence of the end of the text in the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// Index in the prompt of the token after the match.
    pub position: usize,
    /// Tokens that match before the n-gram, at most `ngram_max - ngram`.
    pub extension: usize,
}

/// The n-grams of one prompt. Generated text is searched for but never indexed.
#[derive(Debug, Clone)]
pub struct NgramIndex {
    prompt: Vec<u32>,
    ngram: usize,
    ngram_max: usize,
    /// Hash of an n-gram to the end of its last occurrence.
    newest: HashMap<u64, u32>,
    /// For the end of an occurrence, the end of the one before with the same hash; 0 if there is none.
    previous: Vec<u32>,
}

impl NgramIndex {
    /// Indexes `prompt` in one pass.
    pub fn new(prompt: &[u32], ngram: usize, ngram_max: usize) -> Self {
        let mut newest = HashMap::new();
        let mut previous = vec![0; prompt.len() + 1];
        for end in ngram..=prompt.len() {
            let last = newest.insert(hash(prompt[end - ngram..end].iter().copied()), end as u32);
            previous[end] = last.unwrap_or(0);
        }
        Self { prompt: prompt.to_vec(), ngram, ngram_max, newest, previous }
    }

    /// The indexed prompt.
    pub fn prompt(&self) -> &[u32] {
        &self.prompt
    }

    /// The occurrence of the last n-gram of prompt plus `generated` that extends furthest back, the newest of equals.
    ///
    /// Only the 32 newest occurrences count, and only those whose continuation starts before `limit` and before the end
    /// of the text.
    pub fn find(&self, generated: &[u32], limit: usize) -> Option<Match> {
        let length = self.prompt.len() + generated.len();
        if length <= self.ngram {
            return None;
        }
        let text = |index: usize| match index.checked_sub(self.prompt.len()) {
            None => self.prompt[index],
            Some(offset) => generated[offset],
        };
        let gram = || (length - self.ngram..length).map(text);
        let mut best: Option<Match> = None;
        let candidates = self.occurrences(hash(gram()));
        // Equal hashes are not proof of equal n-grams.
        let equal = candidates
            .filter(|&end| self.prompt[end - self.ngram..end].iter().copied().eq(gram()))
            .take(MAX_CANDIDATES);
        for position in equal.filter(|&end| end < length && end < limit) {
            let before = (position - self.ngram).min(self.ngram_max - self.ngram);
            let extension = (1..=before)
                .take_while(|back| {
                    self.prompt[position - self.ngram - back] == text(length - self.ngram - back)
                })
                .count();
            if best.is_none_or(|best| extension > best.extension) {
                best = Some(Match { position, extension });
                if extension == self.ngram_max - self.ngram {
                    break;
                }
            }
        }
        best
    }

    /// Ends of the occurrences with this hash, newest first.
    fn occurrences(&self, hash: u64) -> impl Iterator<Item = usize> + '_ {
        let newest = self.newest.get(&hash).copied();
        let older = |end: &u32| Some(self.previous[*end as usize]).filter(|&end| end > 0);
        std::iter::successors(newest, older).map(|end| end as usize)
    }
}

fn hash(tokens: impl Iterator<Item = u32>) -> u64 {
    let mut hasher = DefaultHasher::new();
    tokens.for_each(|token| token.hash(&mut hasher));
    hasher.finish()
}
