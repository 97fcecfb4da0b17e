//! A row of a stored matrix as float32.

use super::block_linear;
use super::convert::widen;
use super::linear::affine_row;
use crate::Matrix;

/// `out` = row `row` of a matrix with rows of `k` elements.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn row(matrix: Matrix<'_>, row: usize, k: usize, out: &mut [f32]) {
    match matrix {
        Matrix::Dense(values) => widen(values.slice(row * k..(row + 1) * k), out),
        Matrix::Affine(affine) => affine_row(affine, row, k, out),
        Matrix::Block(block) => block_linear::row(&block, row, k, out),
    }
}
