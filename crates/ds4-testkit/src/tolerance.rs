//! The allowed errors, as one table, each with its reason. Tests take their limits from here and write none of their own.
//!
//! Left out: what must be equal and not close (token ids, routes, selections, n-gram rows, random draws). Those have no
//! tolerance.

/// An allowed error: an absolute part, and one that grows with the largest expected magnitude. The larger one counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Allowed whatever the values are.
    pub absolute: f32,
    /// Allowed per unit of the largest expected magnitude.
    pub relative: f32,
    /// Why this much, and why no more.
    pub reason: &'static str,
}

impl Tolerance {
    /// The allowed absolute error when the largest expected magnitude is `largest`.
    pub fn allowed(&self, largest: f32) -> f32 {
        self.absolute.max(self.relative * largest.abs())
    }

    /// The same tolerance at a fraction of its size.
    pub fn scaled(&self, factor: f32) -> Self {
        Self { absolute: self.absolute * factor, relative: self.relative * factor, reason: self.reason }
    }
}

/// How the weights of a checkpoint are stored. Activations are float32 in every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightStorage {
    /// 32-bit floats.
    F32,
    /// 16-bit floats of either kind.
    Half,
    /// Affine quantised, 8 bits.
    Affine8,
    /// Affine quantised, 4 bits.
    Affine4,
}

/// Logits of a whole model against the reference that runs with the values the stored weights stand for.
pub const LOGITS: &[(WeightStorage, Tolerance)] = &[
    (
        WeightStorage::F32,
        Tolerance {
            absolute: 1e-4,
            relative: 1e-5,
            reason: "float32 sums in another order; the n-gram gate takes a root and so magnifies rounding near zero",
        },
    ),
    (
        WeightStorage::Half,
        Tolerance {
            absolute: 1e-4,
            relative: 1e-5,
            reason: "widening a half float is exact, so nothing is added to the float32 case",
        },
    ),
    (
        WeightStorage::Affine8,
        Tolerance {
            absolute: 2e-4,
            relative: 2e-5,
            reason: "a kernel may sum scale * q * x and bias * x apart, and the two sums partly cancel",
        },
    ),
    (
        WeightStorage::Affine4,
        Tolerance {
            absolute: 2e-4,
            relative: 2e-5,
            reason: "as with 8 bits: the quantised values themselves are exact on both sides",
        },
    ),
];

/// Chunked prefill and decode against one whole prefill of the same engine, as a fraction of [`LOGITS`]: both sides have
/// the same weights and kernels, so only the grouping of sums may differ.
pub const CHUNKED_FRACTION: f32 = 0.5;

/// Two selection scores nearer than this, but not equal, may be ordered either way by two correct float32
/// implementations. Only recorded cases that nobody could choose need it: the small goldens have no such pair.
pub const SELECTION_TOO_NEAR: f32 = 2e-5;

/// Answers recorded from a reference that computes in bfloat16 may go another way where the logits of two tokens are nearer
/// than this: neighbours in bfloat16 are 1/8 apart at the size of the demo models' logits, 16 to 32.
pub const SAMPLE_NEAR_TIE: f32 = 0.125;

/// A kernel family, named after what its error depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Add, multiply, fused multiply-add, casts.
    Elementwise,
    /// exp, log, sigmoid, silu, softplus, sin, cos by polynomials.
    Transcendental,
    /// Sums, means and norms over a row.
    Reduction,
    /// Dense products, whatever the storage of the weights.
    MatMul,
    /// Products with affine quantised weights.
    QuantizedMatMul,
    /// RMS norm and l2 norm, gated or not.
    Norm,
    /// Softmax over a row.
    Softmax,
    /// Rotary position embedding.
    Rope,
    /// Causal depthwise convolution.
    Convolution,
    /// The gated delta rule over a sequence.
    DeltaNet,
    /// Scores, softmax and weighted values.
    Attention,
}

/// A vector kernel against its scalar twin; the relative part refers to the largest expected output.
///
/// The absolute parts assume inputs of magnitude one or less, as the property tests draw them.
pub const KERNELS: &[(Kernel, Tolerance)] = &[
    (Kernel::Elementwise, Tolerance { absolute: 1e-7, relative: 2e-7, reason: "one rounding, or one fused" }),
    (
        Kernel::Transcendental,
        Tolerance {
            absolute: 1e-6,
            relative: 1e-6,
            reason: "polynomials accurate to a few units in the last place",
        },
    ),
    (
        Kernel::Reduction,
        Tolerance { absolute: 2e-6, relative: 2e-6, reason: "sums of a row in lanes, not in order" },
    ),
    (
        Kernel::MatMul,
        Tolerance {
            absolute: 1e-5,
            relative: 1e-5,
            reason: "sums of up to a few thousand products in lanes and blocks",
        },
    ),
    (
        Kernel::QuantizedMatMul,
        Tolerance {
            absolute: 2e-5,
            relative: 2e-5,
            reason: "as dense, and scale and bias may be summed apart",
        },
    ),
    (
        Kernel::Norm,
        Tolerance { absolute: 2e-6, relative: 2e-6, reason: "a reduction, a root and two products" },
    ),
    (
        Kernel::Softmax,
        Tolerance { absolute: 1e-6, relative: 2e-6, reason: "exp by polynomial and a sum in lanes" },
    ),
    (Kernel::Rope, Tolerance { absolute: 1e-6, relative: 1e-6, reason: "two products and a sum per value" }),
    (
        Kernel::Convolution,
        Tolerance { absolute: 1e-6, relative: 1e-6, reason: "a handful of products per value" },
    ),
    (
        Kernel::DeltaNet,
        Tolerance {
            absolute: 2e-5,
            relative: 2e-5,
            reason: "a recurrence: each step's rounding enters the next state",
        },
    ),
    (
        Kernel::Attention,
        Tolerance {
            absolute: 5e-6,
            relative: 5e-6,
            reason: "a product, a softmax, possibly in blocks, and a product",
        },
    ),
];

/// The tolerance of a whole model's logits for weights stored as `storage`.
pub fn logits(storage: WeightStorage) -> Tolerance {
    lookup(LOGITS, storage)
}

/// The tolerance between chunked and whole runs of one engine for weights stored as `storage`.
pub fn chunked_logits(storage: WeightStorage) -> Tolerance {
    logits(storage).scaled(CHUNKED_FRACTION)
}

/// The allowed error of float32 logits whose largest magnitude is `largest`.
pub fn logits_tolerance(largest: f32) -> f32 {
    logits(WeightStorage::F32).allowed(largest)
}

/// The allowed difference of float32 logits between a chunked and a whole run, for the same `largest`.
pub fn chunked_logits_tolerance(largest: f32) -> f32 {
    chunked_logits(WeightStorage::F32).allowed(largest)
}

/// The tolerance of a vector kernel against its scalar twin.
pub fn kernel(kernel: Kernel) -> Tolerance {
    lookup(KERNELS, kernel)
}

fn lookup<K: PartialEq + Copy + std::fmt::Debug>(table: &[(K, Tolerance)], key: K) -> Tolerance {
    let row = table.iter().find(|(k, _)| *k == key);
    row.unwrap_or_else(|| panic!("the tolerance table has no row for {key:?}; add one with its reason")).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_the_two_parts_counts() {
        assert_eq!(logits_tolerance(3.0), 1e-4);
        assert_eq!(logits_tolerance(-50.0), 50.0 * 1e-5);
    }

    #[test]
    fn chunked_runs_get_half_of_the_room() {
        assert_eq!(chunked_logits_tolerance(3.0), 0.5e-4);
    }

    #[test]
    fn every_storage_and_kernel_has_exactly_one_row() {
        use {Kernel::*, WeightStorage::*};
        for storage in [F32, Half, Affine8, Affine4] {
            assert_eq!(LOGITS.iter().filter(|(s, _)| *s == storage).count(), 1, "{storage:?}");
        }
        let kernels = [
            Elementwise,
            Transcendental,
            Reduction,
            MatMul,
            QuantizedMatMul,
            Norm,
            Softmax,
            Rope,
            Convolution,
            DeltaNet,
            Attention,
        ];
        for k in kernels {
            assert_eq!(KERNELS.iter().filter(|(other, _)| *other == k).count(), 1, "{k:?}");
        }
    }
}
