//! Sums of weighted rows: the inner step of a product with an untransposed matrix.

/// `out` += sum over `r` of `x[r]` * row `r` of `rows`, whose rows are as wide as `out`.
pub(crate) fn add_rows(x: &[f32], rows: &[f32], out: &mut [f32]) {
    for (x, row) in x.iter().zip(rows.chunks_exact(out.len())) {
        out.iter_mut().zip(row).for_each(|(out, w)| *out += x * w);
    }
}
