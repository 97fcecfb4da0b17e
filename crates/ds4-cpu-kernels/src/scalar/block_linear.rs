//! Rows of matrices of small floats.

use ds4_dtype::block_formats::small_floats::{E4M3, e2m1_pair};

use crate::{BlockCodes, BlockMatrix};

/// `out` = row `row` of a matrix with rows of `k` elements.
pub(crate) fn row(w: &BlockMatrix<'_>, row: usize, k: usize, out: &mut [f32]) {
    let codes = w.row(row, k);
    match w.codes {
        BlockCodes::E4m3 => out.iter_mut().zip(codes).for_each(|(out, &code)| *out = E4M3[usize::from(code)]),
        BlockCodes::E2m1 => {
            out.as_chunks_mut().0.iter_mut().zip(codes).for_each(|(out, &byte)| *out = e2m1_pair(byte));
        }
    }
    let mut scales = vec![0.0; k.div_ceil(w.block_columns)];
    w.scales_of(row, k, 1.0, &mut scales);
    for (out, scale) in out.chunks_mut(w.block_columns).zip(scales) {
        out.iter_mut().for_each(|out| *out *= scale);
    }
}
