//! Matrix product of rounded activations with affine weights.
//!
//! The order of operations is the same for every instruction set, so all give the same bits: within a group the products
//! of integers are summed exactly; then, group by group,
//! `acc = fma(fma(scale, sum of q_w * q_x, bias * sum of q_x), scale of x, acc)` in float32.

use std::ops::Range;

use crate::AffineMatrix;
use crate::disjoint::Columns;
use crate::prefetch::Path;
use crate::quantised::{QuantisedRow, QuantisedRows};

/// `out[i, j]` = `x[i]` * row `columns[j]` of `w`.
pub(crate) fn block(
    x: QuantisedRows<'_>,
    w: AffineMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    _: Path,
    out: &mut Columns<'_, f32>,
) {
    for i in 0..x.len() {
        let row = x.row(i);
        for (out, n) in out.row(i).iter_mut().zip(columns.clone()) {
            *out = dot(row, w.rows(n, 1, k));
        }
    }
}

fn dot(x: QuantisedRow<'_>, w: AffineMatrix<'_>) -> f32 {
    let per_word = 32 / w.bits as usize;
    let mask = (1 << w.bits) - 1;
    let mut acc = 0.0f32;
    for (g, (scale, x_sum)) in x.scales.iter().zip(x.sums).enumerate() {
        let mut sum = 0;
        for at in g * w.group..(g + 1) * w.group {
            let q = w.packed[at / per_word] >> (at % per_word * w.bits as usize) & mask;
            sum += q as i32 * i32::from(x.lines[at / 64].0[at % 64] as i8);
        }
        let group = w.scales.get(g).mul_add(sum as f32, w.biases.get(g) * x_sum);
        acc = group.mul_add(*scale, acc);
    }
    acc
}
