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
    /// The product is rounded to f32 before the bias is added, as MLX does for f32. For bf16 and f16 MLX rounds both
    /// steps to that type; here the result keeps f32 precision.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout(bits: u32, group: usize) -> AffineLayout {
        AffineLayout::new(bits, group).unwrap()
    }

    fn decode(layout: AffineLayout, row: &AffineRow) -> Vec<f32> {
        let mut out = vec![0.0; row.packed.len() * layout.per_word()];
        let (scales, biases) = (Floats::F32(&row.scales), Floats::F32(&row.biases));
        layout.decode_row(&row.packed, scales, biases, &mut out).unwrap();
        out
    }

    #[test]
    fn elements_are_packed_from_the_lowest_bits() {
        // 0 to 15 and back: the largest is the bias, so q counts down from it.
        let row: Vec<f32> = (0..32u8).map(|i| f32::from(if i < 16 { i } else { 31 - i })).collect();
        let encoded = layout(4, 32).encode_row(&row).unwrap();
        assert_eq!((encoded.scales[0], encoded.biases[0]), (-1.0, 15.0));
        assert_eq!(encoded.packed, [0x89AB_CDEF, 0x0123_4567, 0x7654_3210, 0xFEDC_BA98]);
        assert_eq!(decode(layout(4, 32), &encoded), row);
    }

    #[test]
    fn a_group_of_one_value_survives() {
        for value in [0.0, 0.37, -2.5] {
            let encoded = layout(8, 64).encode_row(&[value; 64]).unwrap();
            assert_eq!(decode(layout(8, 64), &encoded), [value; 64]);
        }
    }

    #[test]
    fn groups_do_not_influence_each_other() {
        let mut row = vec![0.5; 64];
        row[32..].fill(1000.0);
        let encoded = layout(4, 32).encode_row(&row).unwrap();
        assert_eq!(decode(layout(4, 32), &encoded), row);
    }

    #[test]
    fn what_cannot_be_stored_is_refused() {
        assert_eq!(AffineLayout::new(3, 64), Err(AffineError::Bits { bits: 3 }));
        assert_eq!(AffineLayout::new(4, 16), Err(AffineError::Group { group: 16 }));
        let four = layout(4, 64);
        for width in [0, 32, 96] {
            assert_eq!(four.encode_row(&vec![1.0; width]), Err(AffineError::Width { width, group: 64 }));
        }
        let mut row = [1.0; 64];
        row[7] = f32::NAN;
        assert_eq!(four.encode_row(&row), Err(AffineError::NotFinite { index: 7, value: NonFinite::Nan }));
        row[7] = f32::NEG_INFINITY;
        assert_eq!(
            four.encode_row(&row),
            Err(AffineError::NotFinite { index: 7, value: NonFinite::Infinite })
        );
        row[7] = f32::MIN;
        row[8] = f32::MAX;
        assert_eq!(four.encode_row(&row), Err(AffineError::Span { group: 0 }));
    }

    #[test]
    fn parts_that_do_not_fit_the_row_are_refused() {
        let (words, one, two) = ([0; 8], [1.0; 1], [1.0; 2]);
        let decode = |words: &[u32], scales: &[f32], biases: &[f32]| {
            layout(4, 64).decode_row(words, Floats::F32(scales), Floats::F32(biases), &mut [0.0; 64])
        };
        assert_eq!(decode(&words, &one, &one), Ok(()));
        let wrong = |part, expected, given| Err(AffineError::Length { width: 64, part, expected, given });
        assert_eq!(decode(&words[1..], &one, &one), wrong("words", 8, 7));
        assert_eq!(decode(&words, &two, &one), wrong("scales", 1, 2));
        assert_eq!(decode(&words, &one, &[]), wrong("biases", 1, 0));
    }

    proptest! {
        /// Nothing moves by more than one step, zero and the extreme stay where they were.
        #[test]
        fn decoding_comes_close(
            bits in prop::sample::select(&AffineLayout::BITS[..]),
            group in prop::sample::select(&AffineLayout::GROUPS[..]),
            values in prop::collection::vec(-100.0f32..100.0, 256),
        ) {
            let mut values = values;
            values[3] = 0.0;
            let layout = layout(bits, group);
            let encoded = layout.encode_row(&values).unwrap();
            let restored = decode(layout, &encoded);
            for (i, (&was, &is)) in values.iter().zip(&restored).enumerate() {
                // Half a step by rounding; up to half a step more where the scale was fitted to zero.
                let step = encoded.scales[i / group].abs();
                prop_assert!((was - is).abs() <= step * 1.001, "element {i}: {was} became {is}, step {step}");
            }
            for (g, row) in values.chunks(group).enumerate() {
                let edge = row.iter().copied().fold(0.0f32, |a, b| if b.abs() > a.abs() { b } else { a });
                prop_assert_eq!(encoded.biases[g], edge);
            }
            prop_assert!(restored[3].abs() <= encoded.scales[0].abs() * 1e-4, "zero became {}", restored[3]);
        }
    }
}
