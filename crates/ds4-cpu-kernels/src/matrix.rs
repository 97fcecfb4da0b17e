//! Weight matrices as stored, and the value of each element.
//!
//! All are [N, K] row-major: a row holds the weights of one output. Encoding lives with the tools that write weights.

use ds4_dtype::Floats;

use crate::BlockMatrix;

/// A weight matrix in one of the stored forms.
#[derive(Clone, Copy, Debug)]
pub enum Matrix<'a> {
    /// One float an element.
    Dense(Floats<'a>),
    /// Small integers with a scale and a bias a group.
    Affine(AffineMatrix<'a>),
    /// Floats of 8 or 4 bits with a scale a block.
    Block(BlockMatrix<'a>),
}

/// MLX's affine quantisation: an element is `scale * q + bias`, with one scale and bias a group of consecutive elements.
#[derive(Clone, Copy, Debug)]
pub struct AffineMatrix<'a> {
    /// Bits of an element: 4 or 8.
    pub bits: u32,
    /// Elements of a row that share a scale and a bias: 32, 64 or 128. Divides K.
    pub group: usize,
    /// [N, K * bits / 32]: element `i` of a row in word `i / (32 / bits)`, lowest bits first.
    pub packed: &'a [u32],
    /// [N, K / group].
    pub scales: Floats<'a>,
    /// [N, K / group].
    pub biases: Floats<'a>,
}

impl<'a> Matrix<'a> {
    /// Rows `first..first + rows` of a matrix whose rows have `k` elements.
    pub fn rows(self, first: usize, rows: usize, k: usize) -> Self {
        match self {
            Self::Dense(values) => Self::Dense(values.slice(first * k..(first + rows) * k)),
            Self::Affine(affine) => Self::Affine(affine.rows(first, rows, k)),
            Self::Block(block) => Self::Block(block.from_row(first)),
        }
    }

    /// Bytes that `rows` rows of `k` elements take, scales and biases included.
    pub fn bytes(self, rows: usize, k: usize) -> usize {
        match self {
            Self::Dense(values) => rows * k * values.dtype().size(),
            Self::Affine(a) => {
                rows * (k * a.bits as usize / 8
                    + k / a.group * (a.scales.dtype().size() + a.biases.dtype().size()))
            }
            Self::Block(block) => block.bytes(rows, k),
        }
    }

    /// Whether the parts have the lengths of an [n, k] matrix and the format is one the kernels know.
    pub fn is_valid(self, n: usize, k: usize) -> bool {
        match self {
            Self::Dense(values) => values.len() == n * k,
            Self::Affine(a) => {
                matches!((a.bits, a.group), (4 | 8, 32 | 64 | 128))
                    && k.is_multiple_of(a.group)
                    && a.packed.len() == n * k * a.bits as usize / 32
                    && a.scales.len() == n * k / a.group
                    && a.biases.len() == n * k / a.group
            }
            Self::Block(block) => block.is_valid(n, k),
        }
    }
}

impl<'a> AffineMatrix<'a> {
    /// Rows `first..first + rows` of a matrix whose rows have `k` elements.
    pub fn rows(self, first: usize, rows: usize, k: usize) -> Self {
        let words = k * self.bits as usize / 32;
        let groups = k / self.group;
        let group_range = first * groups..(first + rows) * groups;
        Self {
            packed: &self.packed[first * words..(first + rows) * words],
            scales: self.scales.slice(group_range.clone()),
            biases: self.biases.slice(group_range),
            ..self
        }
    }
}
