//! The streams of one row, mixed and added to.

/// Stream k of `out` = `post[k]` * `y` + sum over j of `comb[j, k]` * stream j of `x`.
pub(crate) fn row(x: &[f32], y: &[f32], post: &[f32], comb: &[f32], out: &mut [f32]) {
    let (d, streams) = (y.len(), post.len());
    for (k, out) in out.chunks_exact_mut(d).enumerate() {
        out.iter_mut().zip(y).for_each(|(out, y)| *out = post[k] * y);
        for (j, x) in x.chunks_exact(d).enumerate() {
            let weight = comb[j * streams + k];
            out.iter_mut().zip(x).for_each(|(out, x)| *out += weight * x);
        }
    }
}
