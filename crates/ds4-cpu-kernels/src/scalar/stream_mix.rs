//! One row out of several gated streams.

use crate::scalar::unary::sigmoid;

/// `out` = mean over streams of sigmoid(`u`) * `h`; the streams of `u` and `h` are as wide as `out`.
pub(crate) fn row(u: &[f32], h: &[f32], out: &mut [f32]) {
    let d = out.len();
    let factor = 1.0 / (u.len() / d) as f32;
    out.fill(0.0);
    for (u, h) in u.chunks_exact(d).zip(h.chunks_exact(d)) {
        for ((out, u), h) in out.iter_mut().zip(u).zip(h) {
            *out += sigmoid(*u) * h;
        }
    }
    out.iter_mut().for_each(|out| *out *= factor);
}
