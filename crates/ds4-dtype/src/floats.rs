//! A borrowed run of floats in whichever format it is stored.

use half::{bf16, f16};

use crate::DType;

/// Floats as stored. Reading converts to f32, which all three formats fit into exactly.
#[derive(Clone, Copy, Debug)]
pub enum Floats<'a> {
    /// binary32.
    F32(&'a [f32]),
    /// binary16.
    F16(&'a [f16]),
    /// bfloat16.
    Bf16(&'a [bf16]),
}

impl<'a> Floats<'a> {
    /// Number of elements.
    pub fn len(self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::F16(v) => v.len(),
            Self::Bf16(v) => v.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Element `i`, widened.
    #[inline]
    pub fn get(self, i: usize) -> f32 {
        match self {
            Self::F32(v) => v[i],
            Self::F16(v) => v[i].to_f32(),
            Self::Bf16(v) => v[i].to_f32(),
        }
    }

    /// The elements `range`, in the same format.
    pub fn slice(self, range: std::ops::Range<usize>) -> Floats<'a> {
        match self {
            Self::F32(v) => Self::F32(&v[range]),
            Self::F16(v) => Self::F16(&v[range]),
            Self::Bf16(v) => Self::Bf16(&v[range]),
        }
    }

    /// The storage format.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::F16(_) => DType::F16,
            Self::Bf16(_) => DType::BF16,
        }
    }

    /// All elements, widened.
    pub fn to_f32(self) -> Vec<f32> {
        (0..self.len()).map(|i| self.get(i)).collect()
    }
}
