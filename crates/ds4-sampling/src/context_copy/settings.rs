//! Sizes of context copy, and the ladder from match length to block length.

/// Block lengths by backward extension 0, 1, 2, 3 and 4 or more.
const LADDER: [usize; 5] = [8, 12, 16, 24, 32];
const SMALLEST_BLOCK: usize = 4;
const SMALLEST_PROBATION_BLOCK: usize = 2;
const SMALLEST_NGRAM: usize = 2;

/// Sizes of context copy; `Default` has MTPLX's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopySettings {
    /// Whether blocks are proposed at all.
    pub enabled: bool,
    /// Longest block, in tokens.
    pub block: usize,
    /// Longest block until copying has proven itself, in tokens.
    pub probation_block: usize,
    /// Length of the indexed n-grams.
    pub ngram: usize,
    /// Longest match that is measured; a longer one earns no longer block.
    pub ngram_max: usize,
    /// Matches that extend the n-gram by fewer tokens are ignored.
    pub min_extension: usize,
}

impl Default for CopySettings {
    fn default() -> Self {
        Self { enabled: true, block: 24, probation_block: 8, ngram: 6, ngram_max: 10, min_extension: 0 }
    }
}

impl CopySettings {
    /// The settings with every size raised to its floor: blocks of 4 (2 in probation), n-grams of 2, and a longest match
    /// of at least the n-gram.
    pub fn repaired(self) -> Self {
        let ngram = self.ngram.max(SMALLEST_NGRAM);
        Self {
            block: self.block.max(SMALLEST_BLOCK),
            probation_block: self.probation_block.max(SMALLEST_PROBATION_BLOCK),
            ngram,
            ngram_max: self.ngram_max.max(ngram),
            ..self
        }
    }
}

/// Block length for a match with this backward extension, at most `cap` (and `cap` counts as at least 4).
pub fn block_length(extension: usize, cap: usize) -> usize {
    LADDER[extension.min(LADDER.len() - 1)].min(cap.max(SMALLEST_BLOCK))
}
