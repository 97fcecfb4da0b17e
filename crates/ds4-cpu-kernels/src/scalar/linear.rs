//! Matrix product: each weight row is decoded once and multiplied with every activation row.

use std::ops::Range;

use crate::Matrix;
use crate::disjoint::Columns;
use crate::rows::{LANES, Rows, padded_width};
use crate::scalar::gather_rows;

/// `out[i, j]` = `x[i]` * row `columns[j]` of `w`.
pub(crate) fn block(x: Rows<'_>, w: Matrix<'_>, k: usize, columns: Range<usize>, out: &mut Columns<'_, f32>) {
    let mut weights = vec![0.0; padded_width(k)];
    for (j, n) in columns.enumerate() {
        gather_rows::row(w, n, k, &mut weights[..k]);
        for i in 0..x.len() {
            out.row(i)[j] = dot(x.row(i), &weights);
        }
    }
}

/// Sum of products, in eight interleaved partial sums so that compilers can use whatever vectors there are.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    for (sum, (a, b)) in sums.iter_mut().zip(a_tail.iter().zip(b_tail)) {
        *sum += a * b;
    }
    sums.iter().sum()
}
