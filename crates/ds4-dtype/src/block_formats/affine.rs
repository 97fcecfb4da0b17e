//! The affine layout of MLX: `value = scale * q + bias`, with one scale and bias for each group of consecutive
//! elements of a row.
//!
//! Element `i` of a row is in word `i / (32 / bits)`, lowest bits first. Scales and biases are stored in the float
//! type the weights had. This is the plain, scalar truth that kernels are compared with; other widths that MLX knows
//! (2, 3, 5 and 6 bits) are left out.

use thiserror::Error;

use crate::Floats;

/// Smallest scale, so that a group of equal values does not divide by zero. MLX uses the same.
const SMALLEST_SCALE: f32 = 1e-7;

/// Bits and group size, known to be supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AffineLayout {
    bits: u32,
    group: usize,
}

/// A row, or several whole rows, in affine form.
#[derive(Clone, Debug, PartialEq)]
pub struct AffineRow {
    /// Quantised elements, `32 / bits` to a word.
    pub packed: Vec<u32>,
    /// One scale a group, not yet rounded to the type it will be stored in.
    pub scales: Vec<f32>,
    /// One bias a group, likewise.
    pub biases: Vec<f32>,
}

/// Why something cannot be encoded or decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AffineError {
    /// A bit width without support.
    #[error("{bits} bits are not supported; use 4 or 8")]
    Bits {
        /// What was asked for.
        bits: u32,
    },
    /// A group size without support.
    #[error("groups of {group} elements are not supported; use 32, 64 or 128")]
    Group {
        /// What was asked for.
        group: usize,
    },
    /// A row that does not divide into groups.
    #[error("a row of {width} elements does not divide into groups of {group}")]
    Width {
        /// Elements of the row.
        width: usize,
        /// Elements of a group.
        group: usize,
    },
    /// An infinity or NaN, which no scale can represent.
    #[error("element {index} is {value}; only finite weights can be quantised")]
    NotFinite {
        /// Position in the row.
        index: usize,
        /// How the value prints.
        value: NonFinite,
    },
    /// A group whose extremes are further apart than the largest float.
    #[error("the elements of group {group} span more than a float can hold")]
    Span {
        /// Position of the group in the row.
        group: usize,
    },
    /// Words, scales or biases that do not fit the row.
    #[error("a row of {width} elements has {expected} {part}, but {given} were given")]
    Length {
        /// Elements of the row.
        width: usize,
        /// `words`, `scales` or `biases`.
        part: &'static str,
        /// Number by the layout.
        expected: usize,
        /// Number given.
        given: usize,
    },
}

/// The kinds of float that are not numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonFinite {
    /// Not a number.
    Nan,
    /// An infinity of either sign.
    Infinite,
}

impl std::fmt::Display for NonFinite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nan => "NaN",
            Self::Infinite => "infinite",
        })
    }
}

impl AffineLayout {
    /// Bit widths that are supported.
    pub const BITS: [u32; 2] = [4, 8];
    /// Group sizes that are supported.
    pub const GROUPS: [usize; 3] = [32, 64, 128];

    /// The layout with `bits` an element and `group` elements a scale.
    ///
    /// # Errors
    /// [`AffineError::Bits`] or [`AffineError::Group`].
    pub fn new(bits: u32, group: usize) -> Result<Self, AffineError> {
        if !Self::BITS.contains(&bits) {
            return Err(AffineError::Bits { bits });
        }
        if !Self::GROUPS.contains(&group) {
            return Err(AffineError::Group { group });
        }
        Ok(Self { bits, group })
    }

    /// Bits of one element.
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Elements that share a scale and a bias.
    pub const fn group(self) -> usize {
        self.group
    }

    /// Elements in one u32.
    pub const fn per_word(self) -> usize {
        (u32::BITS / self.bits) as usize
    }

    /// The largest quantised value.
    const fn largest(self) -> u32 {
        u32::MAX >> (u32::BITS - self.bits)
    }

    /// Whether rows of `width` elements can be stored.
    ///
    /// # Errors
    /// [`AffineError::Width`] if they do not divide into groups.
    pub const fn check_width(self, width: usize) -> Result<(), AffineError> {
        if width > 0 && width.is_multiple_of(self.group) {
            Ok(())
        } else {
            Err(AffineError::Width { width, group: self.group })
        }
    }

    /// Quantises `row`, which may also be several whole rows one after another.
    ///
    /// MLX's rule, from its CPU `quantize`: the extreme of larger magnitude becomes the bias, so that it is kept
    /// exactly, and the scale is adjusted until zero falls on a quantised value. Elements are quantised with the scale
    /// and bias *before* these are rounded for storage.
    ///
    /// # Errors
    /// [`AffineError::Width`], [`AffineError::NotFinite`] and [`AffineError::Span`].
    pub fn encode_row(self, row: &[f32]) -> Result<AffineRow, AffineError> {
        self.check_width(row.len())?;
        if let Some(index) = row.iter().position(|v| !v.is_finite()) {
            let value = if row[index].is_nan() { NonFinite::Nan } else { NonFinite::Infinite };
            return Err(AffineError::NotFinite { index, value });
        }
        let groups = row.len() / self.group;
        let mut packed = Vec::with_capacity(row.len() / self.per_word());
        let (mut scales, mut biases) = (Vec::with_capacity(groups), Vec::with_capacity(groups));
        let largest = self.largest() as f32;
        for (g, group) in row.chunks_exact(self.group).enumerate() {
            let (scale, bias) = self.scale_and_bias(group);
            if !scale.is_finite() {
                return Err(AffineError::Span { group: g });
            }
            for elements in group.chunks_exact(self.per_word()) {
                let word = elements.iter().rev().fold(0u32, |word, &element| {
                    let q = ((element - bias) / scale).round_ties_even().clamp(0.0, largest);
                    word << self.bits | q as u32
                });
                packed.push(word);
            }
            scales.push(scale);
            biases.push(bias);
        }
        Ok(AffineRow { packed, scales, biases })
    }

    fn scale_and_bias(self, group: &[f32]) -> (f32, f32) {
        let smallest = group.iter().copied().fold(f32::INFINITY, f32::min);
        let largest = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let steps = self.largest() as f32;
        let width = ((largest - smallest) / steps).max(SMALLEST_SCALE);
        // Counting starts at the edge and runs towards the other extreme, hence the sign.
        let (edge, scale) =
            if smallest.abs() > largest.abs() { (smallest, width) } else { (largest, -width) };
        let zero = (edge / scale).round_ties_even();
        if zero == 0.0 { (scale, 0.0) } else { (edge / zero, edge) }
    }

    /// Restores the elements of one row (or several whole rows) into `out`.
    ///
    /// The product is rounded to f32 before the bias is added.
    ///
    /// # Errors
    /// [`AffineError::Width`] and [`AffineError::Length`].
    pub fn decode_row(
        self,
        packed: &[u32],
        scales: Floats<'_>,
        biases: Floats<'_>,
        out: &mut [f32],
    ) -> Result<(), AffineError> {
        let width = out.len();
        self.check_width(width)?;
        for (part, expected, given) in [
            ("words", width / self.per_word(), packed.len()),
            ("scales", width / self.group, scales.len()),
            ("biases", width / self.group, biases.len()),
        ] {
            if expected != given {
                return Err(AffineError::Length { width, part, expected, given });
            }
        }
        for (g, group) in out.chunks_exact_mut(self.group).enumerate() {
            let (scale, bias) = (scales.get(g), biases.get(g));
            for (i, element) in group.iter_mut().enumerate() {
                *element = scale * self.quantised(packed, g * self.group + i) as f32 + bias;
            }
        }
        Ok(())
    }

    /// Quantised value `i` of a packed row.
    ///
    /// # Panics
    /// If the row is shorter.
    #[inline]
    pub const fn quantised(self, packed: &[u32], i: usize) -> u32 {
        let shift = (i % self.per_word()) as u32 * self.bits;
        packed[i / self.per_word()] >> shift & self.largest()
    }
}
