//! A row of a stored matrix as float32.

use crate::scalar::block_linear;
use crate::scalar::convert::widen;
use crate::{AffineMatrix, Matrix};

/// `out` = row `row` of a matrix with rows of `k` elements.
pub(crate) fn row(matrix: Matrix<'_>, row: usize, k: usize, out: &mut [f32]) {
    match matrix {
        Matrix::Dense(values) => widen(values.slice(row * k..(row + 1) * k), out),
        Matrix::Affine(affine) => affine_row(affine.rows(row, 1, k), out),
        Matrix::Block(block) => block_linear::row(&block, row, k, out),
    }
}

fn affine_row(row: AffineMatrix<'_>, out: &mut [f32]) {
    let per_word = 32 / row.bits as usize;
    let mask = (1 << row.bits) - 1;
    for (g, out) in out.chunks_exact_mut(row.group).enumerate() {
        let (scale, bias) = (row.scales.get(g), row.biases.get(g));
        for (i, out) in out.iter_mut().enumerate() {
            let at = g * row.group + i;
            let q = row.packed[at / per_word] >> (at % per_word * row.bits as usize) & mask;
            // In float64 the product and the sum are exact or nearly so, which makes one rounding: that of a fused
            // multiply-add, without its cost on machines that lack one.
            *out = (f64::from(q) * f64::from(scale) + f64::from(bias)) as f32;
        }
    }
}
