//! The tokens of several sequences in one call.

use std::ops::Range;

/// The tokens of all sequences together.
///
/// Panics unless they follow one another: then no two sequences have the same token, which their tasks rely on.
pub(super) fn all_tokens<'a>(sequences: impl Iterator<Item = &'a Range<usize>>) -> usize {
    sequences.fold(0, |end, tokens| {
        assert_eq!(tokens.start, end, "the tokens of sequences follow one another");
        assert!(tokens.start <= tokens.end, "the tokens of a sequence");
        tokens.end
    })
}
