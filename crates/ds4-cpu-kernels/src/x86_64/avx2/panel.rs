//! Dot products of many rows with many rows, in register tiles: the heart of matrix products and attention scores.
//!
//! Each pair of rows has one vector of partial sums that walks along K in order. That is the whole order of its terms:
//! the tile it happens to be computed in does not matter, which is what the law of rows asks for.

use std::arch::x86_64::*;

use super::lanes::{LANES, load, store, sum, sum_of_4};

/// Columns of partial sums that belong together.
pub(crate) const COLUMNS: usize = 12;

/// Partial sums of `COLUMNS` products of a row.
pub(crate) type Sums = [[f32; LANES]; COLUMNS];

/// Adds to `sums[i][j]` the products of row `x(i)` with row `j` of `w`.
///
/// `w` holds rows of `length` vectors, at most [`COLUMNS`]; each `x(i)` has `length` vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn accumulate<'a>(
    x: impl Fn(usize) -> &'a [[f32; LANES]],
    w: &[[f32; LANES]],
    length: usize,
    sums: &mut [Sums],
) {
    for (t, sums) in sums.chunks_mut(4).enumerate() {
        match sums.len() {
            4 => rows([x(4 * t), x(4 * t + 1), x(4 * t + 2), x(4 * t + 3)], w, length, sums),
            3 => rows([x(4 * t), x(4 * t + 1), x(4 * t + 2)], w, length, sums),
            2 => rows([x(4 * t), x(4 * t + 1)], w, length, sums),
            _ => rows([x(4 * t)], w, length, sums),
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn rows<const M: usize>(x: [&[[f32; LANES]]; M], w: &[[f32; LANES]], length: usize, sums: &mut [Sums]) {
    for (t, w) in w.chunks(3 * length).enumerate() {
        let row = |j: usize| &w[j * length..(j + 1) * length];
        match w.len() / length {
            3 => tile(x, [row(0), row(1), row(2)], 3 * t, sums),
            2 => tile(x, [row(0), row(1)], 3 * t, sums),
            _ => tile(x, [row(0)], 3 * t, sums),
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile<const M: usize, const N: usize>(
    x: [&[[f32; LANES]]; M],
    w: [&[[f32; LANES]]; N],
    column: usize,
    sums: &mut [Sums],
) {
    // Slices of one length let the compiler drop the bounds checks of the loop.
    let length = w[0].len();
    let (mut x, mut w) = (x, w);
    for x in &mut x {
        *x = &x[..length];
    }
    for w in &mut w {
        *w = &w[..length];
    }
    let mut acc = [[_mm256_setzero_ps(); N]; M];
    for i in 0..M {
        for j in 0..N {
            acc[i][j] = load(&sums[i][column + j]);
        }
    }
    for at in 0..length {
        let mut weights = [_mm256_setzero_ps(); N];
        for j in 0..N {
            weights[j] = load(&w[j][at]);
        }
        for i in 0..M {
            let x = load(&x[i][at]);
            for j in 0..N {
                acc[i][j] = _mm256_fmadd_ps(weights[j], x, acc[i][j]);
            }
        }
    }
    for i in 0..M {
        for j in 0..N {
            store(acc[i][j], &mut sums[i][column + j]);
        }
    }
}

/// The finished sums of a row, as many as `out` takes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn finish(sums: &Sums, out: &mut [f32]) {
    let (quads, rest) = out.as_chunks_mut::<4>();
    for (quad, sums) in quads.iter_mut().zip(sums.as_chunks::<4>().0) {
        let [a, b, c, d] = sums;
        *quad = bytemuck::must_cast(sum_of_4([load(a), load(b), load(c), load(d)]));
    }
    let done = 4 * quads.len();
    for (out, sums) in rest.iter_mut().zip(&sums[done..]) {
        *out = sum(load(sums));
    }
}
