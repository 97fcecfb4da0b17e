//! Weight matrices of small floats with a scale for each block, as checkpoints are published: E4M3 with a scale for 128 x 128
//! elements, packed E2M1 with a scale for 32 or 16 elements of a row.

use ds4_dtype::block_formats::small_floats::{E4M3, E8M0};

/// What the bytes of a [`BlockMatrix`] hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockCodes {
    /// An E4M3 float each.
    E4m3,
    /// Two E2M1 floats each, the lower half first.
    E2m1,
}

/// Scales as stored.
#[derive(Clone, Copy, Debug)]
pub enum BlockScales<'a> {
    /// Plain floats.
    F32(&'a [f32]),
    /// Powers of two.
    E8m0(&'a [u8]),
    /// Small floats.
    E4m3(&'a [u8]),
}

impl BlockScales<'_> {
    /// Scale `i`.
    #[inline]
    pub fn get(self, i: usize) -> f32 {
        match self {
            Self::F32(scales) => scales[i],
            Self::E8m0(codes) => E8M0[usize::from(codes[i])],
            Self::E4m3(codes) => E4M3[usize::from(codes[i])],
        }
    }

    fn len(self) -> usize {
        match self {
            Self::F32(scales) => scales.len(),
            Self::E8m0(codes) | Self::E4m3(codes) => codes.len(),
        }
    }

    fn size(self) -> usize {
        if let Self::F32(_) = self { 4 } else { 1 }
    }
}

/// A matrix [N, K]: an element is its code's value times the scale of its block, rounded once.
///
/// It may be several matrices of `period` rows below one another, each with blocks of its own.
#[derive(Clone, Copy, Debug)]
pub struct BlockMatrix<'a> {
    /// What a code means.
    pub codes: BlockCodes,
    /// Row-major codes: K or K / 2 bytes a row.
    pub bytes: &'a [u8],
    /// For each matrix [ceil(period / rows), ceil(K / columns)].
    pub scales: BlockScales<'a>,
    /// Rows of a block.
    pub block_rows: usize,
    /// Columns of a block: a multiple of 16, or at least K.
    pub block_columns: usize,
    /// Rows of a matrix.
    pub period: usize,
    /// The row of `bytes` that is row 0.
    pub first: usize,
}

impl<'a> BlockMatrix<'a> {
    /// The matrix that begins with row `first` of this one.
    pub fn from_row(self, first: usize) -> Self {
        Self { first: self.first + first, ..self }
    }

    /// Bytes of `rows` rows of `k` elements, and of as many scales as belong to them.
    pub fn bytes(self, rows: usize, k: usize) -> usize {
        rows * self.row_bytes(k)
            + rows.div_ceil(self.block_rows) * k.div_ceil(self.block_columns) * self.scales.size()
    }

    /// Whether the parts are long enough for an [n, k] matrix and the form is one the kernels know.
    pub fn is_valid(self, n: usize, k: usize) -> bool {
        let rows = self.first + n;
        let last =
            rows.checked_sub(1).map_or(0, |row| (self.scale_row(row) + 1) * k.div_ceil(self.block_columns));
        (self.block_columns.is_multiple_of(16) || self.block_columns >= k)
            && (self.codes == BlockCodes::E4m3 || k.is_multiple_of(16))
            && self.bytes.len() >= rows * self.row_bytes(k)
            && self.scales.len() >= last
    }

    fn row_bytes(self, k: usize) -> usize {
        match self.codes {
            BlockCodes::E4m3 => k,
            BlockCodes::E2m1 => k / 2,
        }
    }

    /// Codes of row `row`.
    #[inline]
    pub(crate) fn row(&self, row: usize, k: usize) -> &'a [u8] {
        let width = self.row_bytes(k);
        &self.bytes[(self.first + row) * width..][..width]
    }

    /// Writes the scales of the blocks of row `row`, times `factor`.
    pub(crate) fn scales_of(&self, row: usize, k: usize, factor: f32, out: &mut [f32]) {
        let count = k.div_ceil(self.block_columns);
        let first = self.scale_row(self.first + row) * count;
        for (i, out) in out[..count].iter_mut().enumerate() {
            *out = self.scales.get(first + i) * factor;
        }
    }

    fn scale_row(&self, row: usize) -> usize {
        row / self.period * self.period.div_ceil(self.block_rows) + row % self.period / self.block_rows
    }
}
