//! Parts of checkpoints that are accepted and not used.

use std::fmt;

use ds4_weights::Checkpoint;

use crate::names::is_vision;

/// A part of a checkpoint that the model runs without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkippedPart {
    /// Its name, in words.
    pub part: &'static str,
    /// How many tensors it has.
    pub tensors: usize,
    /// What cannot be done without it.
    pub consequence: &'static str,
}

impl SkippedPart {
    /// The vision tower, if there is one.
    pub(crate) fn vision(checkpoint: &Checkpoint) -> Option<Self> {
        Self::of("vision tower", checkpoint, is_vision, "pictures are not supported")
    }

    /// A draft head whose tensors `is_draft` knows, if there is one.
    pub(crate) fn draft_head(checkpoint: &Checkpoint, is_draft: impl Fn(&str) -> bool) -> Option<Self> {
        Self::of("draft head", checkpoint, is_draft, "no speculative decoding with it")
    }

    fn of(
        part: &'static str,
        checkpoint: &Checkpoint,
        belongs: impl Fn(&str) -> bool,
        consequence: &'static str,
    ) -> Option<Self> {
        let tensors = checkpoint.names().filter(|name| belongs(name)).count();
        (tensors > 0).then_some(Self { part, tensors, consequence })
    }

    /// Its tensors, counted in words.
    pub fn count(&self) -> String {
        let plural = if self.tensors == 1 { "" } else { "s" };
        format!("{} tensor{plural} of the {}", self.tensors, self.part)
    }
}

impl fmt::Display for SkippedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.tensors == 1 { "is" } else { "are" };
        write!(f, "{} {verb} skipped: {}", self.count(), self.consequence)
    }
}
