//! Sums, means and maxima.

use crate::ReduceOp;

/// op of one row.
pub(crate) fn row(op: ReduceOp, x: &[f32]) -> f32 {
    match op {
        ReduceOp::Sum => x.iter().sum(),
        ReduceOp::Mean => x.iter().sum::<f32>() / x.len() as f32,
        ReduceOp::Max => {
            x.iter().copied().fold(f32::NEG_INFINITY, |max, x| if x > max || x.is_nan() { x } else { max })
        }
    }
}

/// `out` = mean of the rows of `x`, which are as wide as `out`. Element by element, so compilers vectorise it as it is.
pub(crate) fn mean_of_rows(x: &[f32], out: &mut [f32]) {
    let factor = 1.0 / (x.len() / out.len()) as f32;
    out.fill(0.0);
    for row in x.chunks_exact(out.len()) {
        out.iter_mut().zip(row).for_each(|(out, x)| *out += x);
    }
    out.iter_mut().for_each(|out| *out *= factor);
}
