//! Seeded data and weight matrices for the kernel tests. Each test file uses a part of it.
#![allow(dead_code)]

use ds4_cpu_kernels::{AffineMatrix, Cpu, DeltaSequence, Isa, Matrix};
use ds4_dtype::{Floats, bf16, f16};

/// SplitMix64: small, seedable, and the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// Between -1 and 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    pub(crate) fn scaled(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.unit() * scale).collect()
    }
}

/// Floats in one of the storage formats.
pub(crate) enum Stored {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

impl Stored {
    /// `x` in format 0 (f32), 1 (f16) or 2 (bf16).
    pub(crate) fn new(format: usize, x: &[f32]) -> Self {
        match format {
            0 => Self::F32(x.to_vec()),
            1 => Self::F16(x.iter().map(|x| f16::from_f32(*x)).collect()),
            _ => Self::Bf16(x.iter().map(|x| bf16::from_f32(*x)).collect()),
        }
    }

    pub(crate) fn floats(&self) -> Floats<'_> {
        match self {
            Self::F32(x) => Floats::F32(x),
            Self::F16(x) => Floats::F16(x),
            Self::Bf16(x) => Floats::Bf16(x),
        }
    }
}

/// A weight matrix of any format with its memory.
pub(crate) enum Weights {
    Dense(Stored),
    Affine { bits: u32, group: usize, packed: Vec<u32>, scales: Stored, biases: Stored },
}

/// Formats [`Weights::new`] knows: three dense ones, then affine ones of 4 and 8 bits.
pub(crate) const FORMATS: usize = 9;

impl Weights {
    /// A random [n, k] matrix of format `format`; affine formats need `k` to be a multiple of their group. Scales and biases are of
    /// one format, as checkpoints have them, or of two.
    pub(crate) fn new(random: &mut Random, format: usize, n: usize, k: usize) -> Self {
        let (scales, biases) = (random.below(3), random.below(3));
        let biases = if random.below(2) == 0 { scales } else { biases };
        Self::with_floats(random, format, [scales, biases], n, k)
    }

    /// The same with scales and biases in these formats.
    pub(crate) fn with_floats(
        random: &mut Random,
        format: usize,
        [scales, biases]: [usize; 2],
        n: usize,
        k: usize,
    ) -> Self {
        if format < 3 {
            return Self::Dense(Stored::new(format, &random.floats(n * k)));
        }
        let (bits, group) = [(4, 32), (4, 64), (4, 128), (8, 32), (8, 64), (8, 128)][format - 3];
        let groups = n * k / group;
        Self::Affine {
            bits,
            group,
            packed: (0..n * k * bits as usize / 32).map(|_| random.bits() as u32).collect(),
            scales: Stored::new(scales, &random.scaled(groups, 0.1)),
            biases: Stored::new(biases, &random.floats(groups)),
        }
    }

    /// K that fits the format and is near `k`.
    pub(crate) fn fitting(format: usize, k: usize) -> usize {
        match format {
            0..3 => k,
            3 | 6 => k.next_multiple_of(32),
            4 | 7 => k.next_multiple_of(64),
            _ => k.next_multiple_of(128),
        }
    }

    pub(crate) fn matrix(&self) -> Matrix<'_> {
        match self {
            Self::Dense(values) => Matrix::Dense(values.floats()),
            Self::Affine { bits, group, packed, scales, biases } => Matrix::Affine(AffineMatrix {
                bits: *bits,
                group: *group,
                packed,
                scales: scales.floats(),
                biases: biases.floats(),
            }),
        }
    }
}

/// Every instruction set this machine has, on `threads` threads.
pub(crate) fn all_isas(threads: usize) -> Vec<Cpu> {
    Isa::all().into_iter().filter_map(|isa| Cpu::with_isa(isa, threads)).collect()
}

pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// The output of a kernel that fills a slice of `len` elements. It starts as NaN, so that gaps show.
pub(crate) fn filled(len: usize, kernel: impl FnOnce(&mut [f32])) -> Vec<f32> {
    let mut out = vec![f32::NAN; len];
    kernel(&mut out);
    out
}

/// The output of a delta rule that changes `state` in its place, after a check that it is the same from a state that stays: what
/// stands in the place of the new one does not count.
pub(crate) fn from_either_place(
    tokens: usize,
    len: usize,
    state: &mut [f32],
    rule: impl Fn(DeltaSequence<'_>, &mut [f32]),
) -> Vec<f32> {
    let mut elsewhere = vec![f32::NAN; state.len()];
    let out = filled(len, |out| rule(DeltaSequence::new(0..tokens, Some(state), &mut elsewhere), out));
    let in_place = filled(len, |out| rule(DeltaSequence::new(0..tokens, None, state), out));
    assert_eq!((bits(&out), bits(&elsewhere)), (bits(&in_place), bits(state)));
    out
}
