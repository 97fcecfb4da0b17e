//! NumPy's `SeedSequence`: spreads a small seed over as many state words as a generator needs.
//!
//! The algorithm is O'Neill's `seed_seq_fe` with NumPy's constants (NEP 19 fixes it, so the words are stable).
//! Left out: spawning of child sequences and explicit pool sizes.

const INIT_A: u32 = 0x43b0_d7e5;
const MULT_A: u32 = 0x931e_8875;
const INIT_B: u32 = 0x8b51_f9dd;
const MULT_B: u32 = 0x58f3_8ded;
const MIX_MULT_L: u32 = 0xca01_f9dd;
const MIX_MULT_R: u32 = 0x4973_f715;
const XSHIFT: u32 = 16;
const POOL_WORDS: usize = 4;

/// The mixed entropy pool of one seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedSequence {
    pool: [u32; POOL_WORDS],
}

impl SeedSequence {
    /// The sequence NumPy makes from the non-negative integer `seed`.
    ///
    /// A `u128` has at most four 32-bit words, exactly the pool, so the loop NumPy has for longer entropy is not needed.
    pub fn new(seed: u128) -> Self {
        let mut hash = Hash { constant: INIT_A, multiplier: MULT_A };
        let mut pool: [u32; POOL_WORDS] = std::array::from_fn(|i| hash.apply((seed >> (32 * i)) as u32));
        for source in 0..POOL_WORDS {
            for target in 0..POOL_WORDS {
                if source != target {
                    pool[target] = mix(pool[target], hash.apply(pool[source]));
                }
            }
        }
        Self { pool }
    }

    /// `generate_state(N, uint64)`: N words, the low half of each first.
    pub fn generate_u64<const N: usize>(&self) -> [u64; N] {
        let mut hash = Hash { constant: INIT_B, multiplier: MULT_B };
        let mut words = self.pool.iter().cycle();
        let mut next = || hash.apply(words.next().copied().unwrap_or_default());
        std::array::from_fn(|_| {
            let low = u64::from(next());
            low | u64::from(next()) << 32
        })
    }
}

/// A multiplicative hash whose constant moves on with each word.
struct Hash {
    constant: u32,
    multiplier: u32,
}

impl Hash {
    fn apply(&mut self, value: u32) -> u32 {
        let value = value ^ self.constant;
        self.constant = self.constant.wrapping_mul(self.multiplier);
        let value = value.wrapping_mul(self.constant);
        value ^ (value >> XSHIFT)
    }
}

fn mix(x: u32, y: u32) -> u32 {
    let result = MIX_MULT_L.wrapping_mul(x).wrapping_sub(MIX_MULT_R.wrapping_mul(y));
    result ^ (result >> XSHIFT)
}
