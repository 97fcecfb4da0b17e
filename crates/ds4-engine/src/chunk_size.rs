//! How many prompt tokens go into one pass.
//!
//! A chunk should be large, because each expert's weights are read once a chunk, and short in time, because a client
//! that leaves is noticed between chunks. The size follows the measured speed; results do not depend on it.

use std::time::Duration;

/// How long a chunk may take that nobody else waits for.
pub(crate) const ALONE: Duration = Duration::from_millis(250);

/// Smallest and largest number of tokens.
const RANGE: std::ops::RangeInclusive<usize> = 16..=2048;

/// Size of the next chunk.
#[derive(Clone, Debug)]
pub(crate) struct ChunkSize {
    tokens: usize,
}

impl Default for ChunkSize {
    fn default() -> Self {
        Self { tokens: 128 }
    }
}

impl ChunkSize {
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Learns from a chunk, which may take so long. One outlier moves the size by a factor of two at most.
    pub(crate) fn observe(&mut self, tokens: usize, elapsed: Duration, may_take: Duration) {
        // Short chunks, such as the rest of a prompt, are slower a token and say little.
        if tokens < self.tokens / 2 {
            return;
        }
        let fitting = tokens as f64 * may_take.as_secs_f64() / elapsed.as_secs_f64().max(1e-6);
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
        let mut size = ChunkSize::default();
        for _ in 0..10 {
            size.observe(size.tokens(), Duration::from_millis(1), ALONE);
        }
        assert_eq!(size.tokens(), 2048);
        size.observe(2048, Duration::from_secs(60), ALONE);
        assert_eq!(size.tokens(), 1024);
        for _ in 0..20 {
            size.observe(size.tokens(), Duration::from_secs(60), ALONE);
        }
        assert_eq!(size.tokens(), 16);
    }

    #[test]
    fn the_rest_of_a_prompt_teaches_nothing() {
        let mut size = ChunkSize::default();
        size.observe(3, Duration::from_millis(200), ALONE);
        assert_eq!(size.tokens(), 128);
    }
}
