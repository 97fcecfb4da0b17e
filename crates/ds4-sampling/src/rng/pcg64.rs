//! PCG64 (XSL-RR 128/64) as NumPy's `default_rng` seeds and reads it.
//!
//! Golden values: `golden/mtplx_receipts/rng.jsonl`. Left out: NumPy's other distributions and its buffered 32-bit
//! reads, which no sampler here uses.

use super::SeedSequence;

const MULTIPLIER: u128 = (2_549_297_995_355_413_924 << 64) + 4_865_540_595_714_422_341;

/// A 128-bit permuted congruential generator with 64-bit output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pcg64 {
    state: u128,
    increment: u128,
}

/// The two integers that determine a [`Pcg64`]; the same numbers as NumPy's `state["state"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pcg64State {
    /// Position in the stream.
    pub state: u128,
    /// Which stream; always odd.
    pub increment: u128,
}

impl Pcg64 {
    /// The generator of `numpy.random.default_rng(seed)`.
    pub fn from_seed(seed: u128) -> Self {
        let words: [u64; 4] = SeedSequence::new(seed).generate_u64();
        let pair = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let start = pair(words[0], words[1]);
        let increment = pair(words[2], words[3]) << 1 | 1;
        let mut stream = Self { state: 0, increment };
        stream.step();
        stream.state = stream.state.wrapping_add(start);
        stream.step();
        stream
    }

    /// The generator at a saved position. An even increment is made odd, since no generator has one.
    pub fn from_state(saved: Pcg64State) -> Self {
        Self { state: saved.state, increment: saved.increment | 1 }
    }

    /// The position to save.
    pub fn state(&self) -> Pcg64State {
        Pcg64State { state: self.state, increment: self.increment }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    /// NumPy's `random()`: a multiple of 2^-53 in [0, 1).
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }
}
