//! xorshift64* as ds4 uses it: shifts 12, 25, 27, and the top 24 bits as a float.

const MULTIPLIER: u64 = 0x2545_F491_4F6C_DD1D;
/// Zero is a fixed point of xorshift, so ds4 starts from this word instead.
const ZERO_REPLACEMENT: u64 = 0x9E37_79B9_7F4A_7C15;

/// The random stream of the ds4 sampler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XorShift64Star {
    state: u64,
}

impl XorShift64Star {
    /// A stream that starts at `state`; zero is replaced.
    ///
    /// The ds4 server seeds from the clock when a request has no seed or seed 0. That choice is the caller's; here
    /// every seed reproduces.
    pub fn new(state: u64) -> Self {
        Self { state: if state == 0 { ZERO_REPLACEMENT } else { state } }
    }

    /// The word to save.
    pub fn state(&self) -> u64 {
        self.state
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let mut x = self.state;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.state = x;
        x.wrapping_mul(MULTIPLIER)
    }

    /// A multiple of 2^-24 in [0, 1).
    pub fn next_f32(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u32 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_published_recurrence_from_state_one() {
        // 1 ^ 1>>12 = 1; 1 ^ 1<<25 = 0x2000001; ^ >>27 = 0x2000001; times the multiplier.
        let mut stream = XorShift64Star::new(1);
        assert_eq!(stream.next_u64(), 0x0200_0001u64.wrapping_mul(MULTIPLIER));
        assert_eq!(stream.state(), 0x0200_0001);
    }

    #[test]
    fn zero_starts_from_the_replacement_word() {
        assert_eq!(XorShift64Star::new(0), XorShift64Star::new(ZERO_REPLACEMENT));
    }

    #[test]
    fn floats_are_below_one() {
        let mut stream = XorShift64Star::new(3);
        assert!((0..10_000).map(|_| stream.next_f32()).all(|u| (0.0..1.0).contains(&u)));
    }
}
