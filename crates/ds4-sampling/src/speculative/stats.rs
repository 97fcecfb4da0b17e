//! Counts of speculative decoding over one answer.

/// Counts for `usage`, the end line and metrics. Context copy has its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpeculationStats {
    /// Cycles that verified drafts of the head.
    pub cycles: u64,
    /// Verify passes, those of copied blocks included.
    pub verify_passes: u64,
    /// Tokens drafted, by position in the window.
    pub drafted_by_position: Vec<u64>,
    /// Drafts accepted, by position.
    pub accepted_by_position: Vec<u64>,
    /// Cycles with a rejected draft.
    pub rejected: u64,
    /// Tokens drawn after a fully accepted window.
    pub bonus: u64,
    /// Tokens drawn in place of a rejected draft (copied ones included).
    pub corrections: u64,
}

impl SpeculationStats {
    pub(super) fn new(depth: usize) -> Self {
        Self { drafted_by_position: vec![0; depth], accepted_by_position: vec![0; depth], ..Self::default() }
    }

    /// All drafted tokens.
    pub fn drafted(&self) -> u64 {
        self.drafted_by_position.iter().sum()
    }

    /// All accepted drafts.
    pub fn accepted(&self) -> u64 {
        self.accepted_by_position.iter().sum()
    }

    pub(super) fn count_window(&mut self, drafted: usize, accepted: usize) {
        self.cycles += 1;
        self.verify_passes += 1;
        self.drafted_by_position[..drafted].iter_mut().for_each(|count| *count += 1);
        self.accepted_by_position[..accepted].iter_mut().for_each(|count| *count += 1);
    }
}
