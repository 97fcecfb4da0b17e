//! The two random streams of the reference systems, and the enum a sampler holds.
//!
//! Both streams are deterministic functions of a 64-bit seed and can be saved and restored, so that a session
//! snapshot continues with the same draws. Neither is fit for cryptography.

mod pcg64;
mod seed_sequence;
mod xorshift;

pub use pcg64::{Pcg64, Pcg64State};
pub use seed_sequence::SeedSequence;
pub use xorshift::XorShift64Star;

use crate::SamplerRule;

/// A random stream of either reference, with one method to draw a uniform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RandomStream {
    /// NumPy's `default_rng`.
    Pcg64(Pcg64),
    /// The stream of ds4.
    XorShift64Star(XorShift64Star),
}

/// What a [`RandomStream`] is restored from: plain integers for a snapshot file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RandomState {
    /// State and increment of [`Pcg64`].
    Pcg64(Pcg64State),
    /// State word of [`XorShift64Star`].
    XorShift64Star(u64),
}

impl RandomStream {
    /// The stream `rule` prescribes, started from `seed`.
    pub fn for_rule(rule: SamplerRule, seed: u64) -> Self {
        match rule {
            SamplerRule::Mtplx => Self::Pcg64(Pcg64::from_seed(u128::from(seed))),
            SamplerRule::Ds4 => Self::XorShift64Star(XorShift64Star::new(seed)),
        }
    }

    /// A uniform in [0, 1): 53 random bits from PCG64, 24 from xorshift64*. One state step either way.
    pub fn uniform(&mut self) -> f64 {
        match self {
            Self::Pcg64(stream) => stream.next_f64(),
            Self::XorShift64Star(stream) => f64::from(stream.next_f32()),
        }
    }

    /// The state to save in a snapshot.
    pub fn state(&self) -> RandomState {
        match self {
            Self::Pcg64(stream) => RandomState::Pcg64(stream.state()),
            Self::XorShift64Star(stream) => RandomState::XorShift64Star(stream.state()),
        }
    }

    /// The stream that continues from a saved state.
    pub fn from_state(state: RandomState) -> Self {
        match state {
            RandomState::Pcg64(state) => Self::Pcg64(Pcg64::from_state(state)),
            RandomState::XorShift64Star(word) => Self::XorShift64Star(XorShift64Star::new(word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_stream_continues_with_the_same_draws() {
        for rule in [SamplerRule::Mtplx, SamplerRule::Ds4] {
            let mut stream = RandomStream::for_rule(rule, 7);
            for _ in 0..5 {
                stream.uniform();
            }
            let mut restored = RandomStream::from_state(stream.state());
            let ahead: Vec<f64> = (0..8).map(|_| stream.uniform()).collect();
            let again: Vec<f64> = (0..8).map(|_| restored.uniform()).collect();
            assert_eq!(ahead, again);
        }
    }
}
