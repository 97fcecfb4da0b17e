//! Scales and biases of eight weight rows, turned so that those of a group lie in one vector.

use std::arch::x86_64::*;

use ds4_dtype::Floats;

use super::lanes::{LANES, load, store, transpose};
use super::linear_int8::AHEAD;
use super::storage::{Element, fetch};

/// Groups of a panel at most: 1024 elements in groups of 32.
pub(crate) const GROUPS: usize = 32;

/// Of each group, the scales and the biases of eight columns.
pub(crate) struct ScalePanel {
    pub(crate) scales: [[f32; LANES]; GROUPS],
    pub(crate) biases: [[f32; LANES]; GROUPS],
}

impl ScalePanel {
    pub(crate) fn new() -> Self {
        Self { scales: [[0.0; LANES]; GROUPS], biases: [[0.0; LANES]; GROUPS] }
    }
}

/// `out[i][c]` = element `first + i` of row `rows[c]` of `values`, which has rows of `width` elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn turn(
    values: Floats<'_>,
    rows: &[usize; LANES],
    width: usize,
    first: usize,
    out: &mut [[f32; LANES]],
) {
    match values {
        Floats::F32(values) => turn_as(values, rows, width, first, out),
        Floats::F16(values) => turn_as(values, rows, width, first, out),
        Floats::Bf16(values) => turn_as(values, rows, width, first, out),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn turn_as<T: Element>(
    values: &[T],
    rows: &[usize; LANES],
    width: usize,
    first: usize,
    out: &mut [[f32; LANES]],
) {
    for (i, out) in out.chunks_mut(4).enumerate() {
        let at = first + i * 4;
        let four = |c: usize| &values[rows[c] * width + at..][..out.len()];
        fetch(four(0).as_ptr().wrapping_add(AHEAD * width));
        fetch(four(4).as_ptr().wrapping_add(AHEAD * width));
        let pairs =
            [pair(four(0), four(4)), pair(four(1), four(5)), pair(four(2), four(6)), pair(four(3), four(7))];
        for (out, group) in out.iter_mut().zip(transpose(pairs)) {
            store(group, out);
        }
    }
}

/// Up to four values of one column, then as many of another, in the halves of a vector.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pair<T: Element>(a: &[T], b: &[T]) -> __m256 {
    if let (&[a0, a1, a2, a3], &[b0, b1, b2, b3]) = (a, b) {
        // SAFETY: the features are enabled here.
        return unsafe { T::widen(&[a0, a1, a2, a3, b0, b1, b2, b3]) };
    }
    let mut both = [0.0; LANES];
    both.iter_mut().zip(a).for_each(|(out, x)| *out = x.to_f32());
    both[4..].iter_mut().zip(b).for_each(|(out, x)| *out = x.to_f32());
    load(&both)
}
