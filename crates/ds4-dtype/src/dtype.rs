//! The element types of arrays and of tensors in files.

use std::fmt;

/// Type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// 8-bit float of 4 exponent and 3 mantissa bits: codes of block-scaled weights.
    F8E4M3,
    /// 8-bit power of two: scales of block-scaled weights.
    F8E8M0,
    /// 8-bit unsigned.
    U8,
    /// 8-bit signed: packed 4-bit floats in checkpoints.
    I8,
    /// 32-bit unsigned: ids, indices, packed quantised values.
    U32,
    /// 32-bit signed.
    I32,
    /// 64-bit signed: hash multipliers and table offsets in checkpoints.
    I64,
}

impl DType {
    const ALL: [Self; 10] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::F8E4M3,
        Self::F8E8M0,
        Self::U8,
        Self::I8,
        Self::U32,
        Self::I32,
        Self::I64,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::F8E4M3 | Self::F8E8M0 | Self::U8 | Self::I8 => 1,
            Self::F16 | Self::BF16 => 2,
            Self::F32 | Self::U32 | Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    /// Whether it is one of the three float formats that activations and plain weights have.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// The name used in safetensors headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::F8E4M3 => "F8_E4M3",
            Self::F8E8M0 => "F8_E8M0",
            Self::U8 => "U8",
            Self::I8 => "I8",
            Self::U32 => "U32",
            Self::I32 => "I32",
            Self::I64 => "I64",
        }
    }

    /// The type with this safetensors name, if arrays support it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_types() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!(DType::from_name("F8_E5M2"), None);
    }
}
