//! Matrix product of rounded activations with affine weights, four columns of output at a time.
//!
//! The order of sums is the one that `scalar/linear_int8.rs` states, and so are the bits. Activations lie in their own
//! order: loads that separate even from odd elements bring them next to the nibbles.

use std::arch::aarch64::*;
use std::ops::Range;

use crate::AffineMatrix;
use crate::disjoint::Columns;
use crate::prefetch::Path;
use crate::quantised::{QuantisedRow, QuantisedRows};

/// Columns of a tile.
const COLUMNS: usize = 4;

/// `out[i, j]` = `x[i]` * row `columns[j]` of `w`.
#[target_feature(enable = "neon,dotprod")]
pub(crate) fn block(
    x: QuantisedRows<'_>,
    w: AffineMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    _: Path,
    out: &mut Columns<'_, f32>,
) {
    for n in columns.clone().step_by(COLUMNS) {
        let last = columns.end - 1;
        let rows = [n, last.min(n + 1), last.min(n + 2), last.min(n + 3)].map(|row| w.rows(row, 1, k));
        let at = n - columns.start;
        let fours = x.len() / 4 * 4;
        for i in (0..fours).step_by(4) {
            let tile = tile([x.row(i), x.row(i + 1), x.row(i + 2), x.row(i + 3)], &rows);
            for (r, sums) in tile.into_iter().enumerate() {
                out.put(i + r, at, &sums);
            }
        }
        for i in fours..x.len() {
            let [sums] = tile([x.row(i)], &rows);
            out.put(i, at, &sums);
        }
    }
}

/// Products of some rows of activations with four weight rows.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn tile<const R: usize>(x: [QuantisedRow<'_>; R], w: &[AffineMatrix<'_>; COLUMNS]) -> [[f32; COLUMNS]; R] {
    let mut acc = [vdupq_n_f32(0.0); R];
    let group = w[0].group;
    for g in 0..x[0].scales.len() {
        let mut dots = [[vdupq_n_s32(0); COLUMNS]; R];
        for run in g * group / 32..(g + 1) * group / 32 {
            if w[0].bits == 4 { add_nibbles(&x, w, run, &mut dots) } else { add_bytes(&x, w, run, &mut dots) }
        }
        let scales = w.map(|w| w.scales.get(g));
        let biases = w.map(|w| w.biases.get(g));
        for r in 0..R {
            let [a, b, c, d] = dots[r];
            let mut dot = vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
            if w[0].bits == 8 {
                // Bytes were taken less 128.
                dot = vaddq_s32(dot, vdupq_n_s32(128 * x[r].sums[g] as i32));
            }
            let bias = vmulq_n_f32(vector(&biases), x[r].sums[g]);
            let group = vfmaq_f32(bias, vector(&scales), vcvtq_f32_s32(dot));
            acc[r] = vfmaq_n_f32(acc[r], group, x[r].scales[g]);
        }
    }
    let mut out = [[0.0; COLUMNS]; R];
    for r in 0..R {
        // SAFETY: the array is as long as the vector.
        unsafe { vst1q_f32(out[r].as_mut_ptr(), acc[r]) };
    }
    out
}

/// Adds the products of elements `32 * run` to `32 * run + 32`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_nibbles<const R: usize>(
    x: &[QuantisedRow<'_>; R],
    w: &[AffineMatrix<'_>; COLUMNS],
    run: usize,
    dots: &mut [[int32x4_t; COLUMNS]; R],
) {
    for c in 0..COLUMNS {
        let bytes: &[u8] = bytemuck::cast_slice(&w[c].packed[4 * run..4 * run + 4]);
        // SAFETY: 16 bytes are there.
        let bytes = unsafe { vld1q_u8(bytes.as_ptr()) };
        let even = vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15)));
        let odd = vreinterpretq_s8_u8(vshrq_n_u8::<4>(bytes));
        for r in 0..R {
            // SAFETY: `elements` gives 32 of them.
            let parts = unsafe { vld2q_s8(elements(&x[r], run).as_ptr()) };
            dots[r][c] = dot(dot(dots[r][c], even, parts.0), odd, parts.1);
        }
    }
}

/// The same for 8-bit weights, as if each were less by 128.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_bytes<const R: usize>(
    x: &[QuantisedRow<'_>; R],
    w: &[AffineMatrix<'_>; COLUMNS],
    run: usize,
    dots: &mut [[int32x4_t; COLUMNS]; R],
) {
    for c in 0..COLUMNS {
        let bytes: &[u8] = bytemuck::cast_slice(&w[c].packed[8 * run..8 * run + 8]);
        for half in 0..2 {
            // SAFETY: 32 bytes are there.
            let bytes = unsafe { vld1q_u8(bytes.as_ptr().add(16 * half)) };
            let bytes = vreinterpretq_s8_u8(veorq_u8(bytes, vdupq_n_u8(128)));
            for r in 0..R {
                // SAFETY: `elements` gives 32 of them.
                let x = unsafe { vld1q_s8(elements(&x[r], run).as_ptr().add(16 * half)) };
                dots[r][c] = dot(dots[r][c], bytes, x);
            }
        }
    }
}

/// Elements `32 * run` to `32 * run + 32`.
#[inline]
fn elements<'a>(x: &QuantisedRow<'a>, run: usize) -> &'a [i8; 32] {
    let halves: &[[i8; 32]; 2] = bytemuck::must_cast_ref(&x.lines[run / 2]);
    &halves[run % 2]
}

#[inline]
#[target_feature(enable = "neon")]
fn vector(x: &[f32; COLUMNS]) -> float32x4_t {
    // SAFETY: four floats are there.
    unsafe { vld1q_f32(x.as_ptr()) }
}

/// `sum` and the sums of products of four neighbours.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // The instruction itself, since the function for it is not in stable Rust.
    // SAFETY: the feature is enabled here, and nothing but the register changes.
    unsafe {
        std::arch::asm!(
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}
