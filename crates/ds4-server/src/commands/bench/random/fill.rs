//! The values of a random checkpoint, written by all threads at once; they depend on the seed alone.

use ds4_dtype::bf16;
use memmap2::MmapMut;

use super::layout::{Content, Plan};

/// Standard deviation of a 4-bit value, and its mean.
const DEVIATION: f32 = 4.61;
const MEAN: f32 = 7.5;

/// A thread fills this many bytes at a time; also the unit of the random streams, so that threads do not matter.
const PIECE: usize = 1 << 20;

/// The bytes of the file. They stay where they are for as long as the program runs.
pub(super) fn weights(plan: &Plan, seed: u64, threads: usize) -> anyhow::Result<&'static [u8]> {
    let memory: &'static mut MmapMut = Box::leak(Box::new(MmapMut::map_anon(plan.file_bytes())?));
    // As a file has them that is loaded.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    let (header, mut data) = memory.split_at_mut(plan.header.len());
    header.copy_from_slice(&plan.header);
    let mut pieces = Vec::new();
    for slot in &plan.slots {
        let (mine, rest) = data.split_at_mut(slot.bytes.len());
        data = rest;
        pieces.extend(mine.chunks_mut(PIECE).map(|piece| (slot.content, piece)));
    }
    let mut shares: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
    for (i, (content, piece)) in pieces.into_iter().enumerate() {
        shares[i % threads].push((Random::new(seed, i as u64), content, piece));
    }
    std::thread::scope(|scope| {
        for share in shares {
            scope.spawn(|| {
                share.into_iter().for_each(|(mut random, content, piece)| random.fill(content, piece))
            });
        }
    });
    Ok(&memory[..])
}

/// A stream of random numbers: xorshift64*, quick and good enough for weights that mean nothing.
struct Random(u64);

impl Random {
    fn new(seed: u64, stream: u64) -> Self {
        // Odd multipliers spread neighbouring seeds and streams apart; the state must not be zero.
        let mixed =
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (stream + 1).wrapping_mul(0xD134_2543_DE82_EF95);
        Self(mixed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// From -1 to 1.
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn fill(&mut self, content: Content, out: &mut [u8]) {
        match content {
            Content::Packed => {
                for bytes in out.chunks_mut(8) {
                    bytes.copy_from_slice(&self.next().to_le_bytes()[..bytes.len()]);
                }
            }
            Content::Scales { inner } => write(out, || scale(inner)),
            Content::Biases { inner } => write(out, || -MEAN * scale(inner)),
            Content::Norm => write(out, || 1.0 + 0.1 * self.float()),
            Content::Dense => write(out, || 0.5 * self.float()),
            Content::Experts { columns, experts } => {
                // A piece may begin within a row, but rows are short: an id twice in one would do no harm.
                for row in out.chunks_mut(columns * 8) {
                    let first = self.next() % experts;
                    for (i, bytes) in row.chunks_exact_mut(8).enumerate() {
                        bytes.copy_from_slice(&((first + i as u64) % experts).to_le_bytes());
                    }
                }
            }
        }
    }
}

fn scale(inner: usize) -> f32 {
    bf16::from_f32((inner as f32).sqrt().recip() / DEVIATION).to_f32()
}

fn write(out: &mut [u8], mut value: impl FnMut() -> f32) {
    for bytes in out.chunks_exact_mut(2) {
        bytes.copy_from_slice(&bf16::from_f32(value()).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_depend_on_the_seed_and_not_on_the_threads() {
        let needed = [("a.weight", vec![4096, 1024]), ("b.weight", vec![70])];
        let plan = Plan::of(&needed.map(|(name, shape)| (name.to_owned(), shape)).into(), 8);
        let one = weights(&plan, 7, 1).unwrap();
        assert_eq!(one, weights(&plan, 7, 3).unwrap());
        assert_ne!(one, weights(&plan, 8, 1).unwrap());
    }

    #[test]
    fn a_row_of_weights_has_variance_one_over_its_length() {
        let (inner, mut random) = (1024, Random::new(1, 0));
        let mut packed = vec![0_u8; 64 * inner / 2];
        random.fill(Content::Packed, &mut packed);
        let value = |q: u8| (f32::from(q) - MEAN) * scale(inner);
        let weights: Vec<f32> = packed.iter().flat_map(|byte| [value(byte & 15), value(byte >> 4)]).collect();
        let variance = weights.iter().map(|w| w * w).sum::<f32>() / weights.len() as f32;
        assert!((0.97..1.03).contains(&(variance * inner as f32)), "{variance}");
    }
}
