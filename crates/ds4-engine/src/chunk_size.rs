//! How many prompt tokens go into one pass.
//!
//! A chunk should be large, because each expert's weights are read once a chunk, and short in time, because a client
//! that leaves is noticed between chunks. The size follows the measured speed; results do not depend on it.

use std::time::Duration;

/// How long a chunk may take that nobody else waits for, and one that others wait for.
const ALONE: Duration = Duration::from_millis(250);
const BESIDE_OTHERS: Duration = Duration::from_millis(80);

/// Smallest and largest number of tokens.
const RANGE: std::ops::RangeInclusive<usize> = 16..=2048;

/// Size of the next chunk.
#[derive(Clone, Debug)]
pub(crate) struct ChunkSize {
    tokens: usize,
    target: Duration,
}

impl ChunkSize {
    pub(crate) fn alone() -> Self {
        Self { tokens: 128, target: ALONE }
    }

    pub(crate) fn beside_others() -> Self {
        Self { tokens: 48, target: BESIDE_OTHERS }
    }

    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Learns from a chunk. One outlier moves the size by a factor of two at most.
    pub(crate) fn observe(&mut self, tokens: usize, elapsed: Duration) {
        // Short chunks, such as the rest of a prompt, are slower a token and say little.
        if tokens < self.tokens / 2 {
            return;
        }
        let fitting = tokens as f64 * self.target.as_secs_f64() / elapsed.as_secs_f64().max(1e-6);
        let near = (fitting as usize).clamp(self.tokens / 2, self.tokens * 2);
        // Multiples of 16 fill the kernels' tiles.
        self.tokens = (near / 16 * 16).clamp(*RANGE.start(), *RANGE.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_follows_the_speed_step_by_step() {
        let mut size = ChunkSize::alone();
        for _ in 0..10 {
            size.observe(size.tokens(), Duration::from_millis(1));
        }
        assert_eq!(size.tokens(), 2048);
        size.observe(2048, Duration::from_secs(60));
        assert_eq!(size.tokens(), 1024);
        for _ in 0..20 {
            size.observe(size.tokens(), Duration::from_secs(60));
        }
        assert_eq!(size.tokens(), 16);
    }

    #[test]
    fn others_wait_for_shorter_chunks() {
        let (mut alone, mut beside) = (ChunkSize::alone(), ChunkSize::beside_others());
        for size in [&mut alone, &mut beside] {
            (0..10).for_each(|_| size.observe(size.tokens(), Duration::from_millis(size.tokens() as u64)));
        }
        assert_eq!((alone.tokens(), beside.tokens()), (240, 80));
    }

    #[test]
    fn the_rest_of_a_prompt_teaches_nothing() {
        let mut size = ChunkSize::alone();
        size.observe(3, Duration::from_millis(200));
        assert_eq!(size.tokens(), 128);
    }
}
