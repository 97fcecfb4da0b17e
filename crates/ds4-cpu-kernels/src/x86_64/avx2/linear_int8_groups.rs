//! Some groups of a few rows of rounded activations, times those of weight rows.
//!
//! What lies side by side in a vector are the groups of one weight row. Only their results are turned, eight weight rows at a
//! time, to be added in the order of the groups.

use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;
use std::slice;

use bytemuck::{must_cast, must_cast_ref};

use super::lanes::{LANES, load, transpose};
use super::linear_int8_stored::{BLOCK, Stored, VECTORS};
use super::packing::Packing;
use crate::prefetch;
use crate::quantised::{Line, QuantisedRow};

/// Blocks whose sums are brought together in one vector; also half the groups of a vector.
const FOUR: usize = 4;

/// Of eight groups: for each of eight weight rows and each row of activations, the results.
pub(super) type Eight<const ROWS: usize> = [[[f32; LANES]; ROWS]; LANES];

/// Some groups of rows of activations, each of `N` blocks.
pub(super) struct Groups<'a, const ROWS: usize, const N: usize> {
    first: usize,
    /// Lines from the first group to the end of a row.
    lines: [&'a [Line]; ROWS],
    scales: [&'a [f32]; ROWS],
    /// Sums of whole vectors of groups.
    sums: [&'a [[f32; LANES]]; ROWS],
    /// Sums of the groups after these: of up to four in both halves, if those of two weight rows share a vector.
    last: [[f32; LANES]; ROWS],
}

impl<'a, const ROWS: usize, const N: usize> Groups<'a, ROWS, N> {
    /// Blocks of eight groups.
    const EACH: usize = if N == 0 { FOUR } else { 2 * FOUR * N };

    #[inline]
    pub(super) fn new(x: &[QuantisedRow<'a>; ROWS], some: Range<usize>) -> Self {
        let mut groups = Self {
            first: some.start,
            lines: [&[]; ROWS],
            scales: [&[]; ROWS],
            sums: [&[]; ROWS],
            last: [[0.0; LANES]; ROWS],
        };
        for (i, x) in x.iter().enumerate() {
            groups.lines[i] = &x.lines[some.start / LANES * Self::EACH..];
            groups.scales[i] = &x.scales[some.clone()];
            let (sums, last) = x.sums[some.clone()].as_chunks();
            groups.sums[i] = sums;
            for (to, sum) in groups.last[i].iter_mut().zip(last) {
                *to = *sum;
            }
            if N > 0 && last.len() <= FOUR {
                groups.last[i].copy_within(..FOUR, FOUR);
            }
        }
        groups
    }

    /// Results of each eight weight rows: vectors of `results[v][c][i]` = products of row `i` with those of weight row `c`, still
    /// without the scales of activations.
    ///
    /// # Safety
    /// The weight rows have these groups, and their blocks can be read as far as a row has lines. The machine has AVX2.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn times<P: Packing>(&self, w: &Stored<'_>, results: &mut [Eight<ROWS>; VECTORS]) {
        let whole = self.sums[0].len();
        let left = self.scales[0].len() - whole * LANES;
        // SAFETY: by the caller's promise; of groups that are left over the lines are whole fours.
        unsafe {
            if whole > 0 {
                self.vectors::<P, false>(w, 0..whole, &self.sums, results);
            }
            if left > 0 {
                let mut sums = [&[] as &[[f32; LANES]]; ROWS];
                for (sums, last) in sums.iter_mut().zip(&self.last) {
                    *sums = slice::from_ref(last);
                }
                if N > 0 && left <= FOUR {
                    self.vectors::<P, true>(w, whole..whole + 1, &sums, results);
                } else {
                    self.vectors::<P, false>(w, whole..whole + 1, &sums, results);
                }
            }
        }
    }

    /// The vectors `some` of results: each of eight groups of a weight row, or, in pairs, of four groups of two.
    ///
    /// # Safety
    /// As for [`Self::times`].
    #[inline(never)]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn vectors<P: Packing, const PAIRS: bool>(
        &self,
        w: &Stored<'_>,
        some: Range<usize>,
        sums: &[&[[f32; LANES]]; ROWS],
        results: &mut [Eight<ROWS>; VECTORS],
    ) {
        let from = self.first / LANES * Self::EACH + some.start * Self::EACH;
        let per_eight = self.scales[0].len().div_ceil(LANES);
        assert!(sums.iter().all(|sums| sums.len() == some.len()), "sums of other groups");
        for (e, results) in results.chunks_exact_mut(per_eight).enumerate().take(w.eights()) {
            for c in (0..w.rows_of(e)).step_by(if PAIRS { 2 } else { 1 }) {
                let row = e * LANES + c;
                for (v, results) in results[some.clone()].iter_mut().enumerate() {
                    let block = from + v * Self::EACH;
                    if PAIRS {
                        prefetch::lines(w.fetched(e, c, block), Self::EACH * BLOCK / 2);
                        prefetch::lines(w.fetched(e, c + 1, block), Self::EACH * BLOCK / 2);
                    } else {
                        prefetch::lines(w.fetched(e, c, block), Self::EACH * BLOCK);
                    }
                    // SAFETY: by the caller's promise.
                    let (dots, [scales, biases]) = unsafe {
                        let group = self.first + (some.start + v) * LANES;
                        (
                            self.dots::<P, PAIRS>(w, row, block, (some.start + v) * Self::EACH),
                            if PAIRS { w.factors_of_two(row, group) } else { w.factors(row, group) },
                        )
                    };
                    for i in 0..ROWS {
                        // SAFETY: there are as many sums as vectors.
                        let sums = load(unsafe { sums[i].get_unchecked(v) });
                        let bias = _mm256_mul_ps(biases, sums);
                        let result = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(dots[i]), bias);
                        results[c % LANES][i] = must_cast(result);
                        if PAIRS {
                            let upper = _mm256_permute2f128_ps::<0x11>(result, result);
                            results[(c + 1) % LANES][i] = must_cast(upper);
                        }
                    }
                }
            }
        }
    }

    /// Sums of the products of integers, from block `block` and line `line` on: of eight groups of weight row `c`, or of four of
    /// it and four of the next.
    ///
    /// # Safety
    /// As for [`Self::times`].
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn dots<P: Packing, const PAIRS: bool>(
        &self,
        w: &Stored<'_>,
        c: usize,
        block: usize,
        line: usize,
    ) -> [__m256i; ROWS] {
        let mut dots = [_mm256_setzero_si256(); ROWS];
        // SAFETY: by the caller's promise.
        unsafe {
            if N == 0 {
                let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
                let four = self.four::<P, 1>(w.blocks(c, block), line);
                for i in 0..ROWS {
                    dots[i] = _mm256_permutevar8x32_epi32(four[i], order);
                }
            }
            for part in 0..N {
                let lower = self.four::<P, N>(w.blocks(c, block + part), line + part);
                let upper = if PAIRS {
                    self.four::<P, N>(w.blocks(c + 1, block + part), line + part)
                } else {
                    self.four::<P, N>(w.blocks(c, block + FOUR * N + part), line + FOUR * N + part)
                };
                for i in 0..ROWS {
                    let low = _mm256_permute2x128_si256::<0x20>(lower[i], upper[i]);
                    let high = _mm256_permute2x128_si256::<0x31>(lower[i], upper[i]);
                    dots[i] = _mm256_add_epi32(dots[i], _mm256_add_epi32(low, high));
                }
            }
        }
        dots
    }

    /// Sums of the products of four blocks, `STEP` apart: those of their lower halves, then those of their upper ones.
    ///
    /// # Safety
    /// There are such blocks, and lines from `line` on. The machine has AVX2.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn four<P: Packing, const STEP: usize>(
        &self,
        blocks: *const __m256i,
        line: usize,
    ) -> [__m256i; ROWS] {
        let mut parts = [[_mm256_setzero_si256(); 2]; FOUR];
        for (b, parts) in parts.iter_mut().enumerate() {
            // SAFETY: by the caller's promise.
            unsafe {
                let block = _mm256_loadu_si256(blocks.add(b * STEP));
                *parts = [P::low(block), P::high(block)];
            }
        }
        let mut dots = [_mm256_setzero_si256(); ROWS];
        for (dot, lines) in dots.iter_mut().zip(&self.lines) {
            debug_assert!(line + (FOUR - 1) * STEP < lines.len());
            let lines = next_row(lines.as_ptr().wrapping_add(line));
            let mut sums = [_mm256_setzero_si256(); FOUR];
            for b in 0..FOUR {
                // SAFETY: by the caller's promise.
                sums[b] = unsafe {
                    let [even, odd]: &[__m256i; 2] = must_cast_ref(&*lines.add(b * STEP));
                    P::add(P::multiply(parts[b][0], *even), P::multiply(parts[b][1], *odd))
                };
            }
            *dot = end_of_row(across::<P>(sums));
        }
        dots
    }

    /// `sums[i]` += the results of row `i` times the scales of its activations.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn add(&self, results: &[Eight<ROWS>], sums: &mut [__m256; ROWS]) {
        for (i, sum) in sums.iter_mut().enumerate() {
            let (fours, last) = self.scales[i].as_chunks::<FOUR>();
            for (at, scales) in fours.iter().enumerate() {
                let turned = turned(&results[at / 2], at % 2, i);
                for g in 0..FOUR {
                    *sum = _mm256_fmadd_ps(turned[g], _mm256_set1_ps(scales[g]), *sum);
                }
            }
            if !last.is_empty() {
                let turned = turned(&results[fours.len() / 2], fours.len() % 2, i);
                for (turned, scale) in turned.iter().zip(last) {
                    *sum = _mm256_fmadd_ps(*turned, _mm256_set1_ps(*scale), *sum);
                }
            }
        }
    }
}

/// The results of row `i` in the lower or the upper four groups: for each group, those of eight weight rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn turned<const ROWS: usize>(results: &Eight<ROWS>, half: usize, i: usize) -> [__m256; FOUR] {
    let mut columns = [_mm256_setzero_ps(); FOUR];
    for c in 0..FOUR {
        let (a, b): (&[[f32; FOUR]; 2], &[[f32; FOUR]; 2]) =
            (must_cast_ref(&results[c][i]), must_cast_ref(&results[c + FOUR][i]));
        columns[c] = must_cast([a[half], b[half]]);
    }
    transpose(columns)
}

/// In each half, the sums of the lanes of four vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn across<P: Packing>([a, b, c, d]: [__m256i; FOUR]) -> __m256i {
    // SAFETY: the features are enabled here.
    unsafe {
        let ab = P::add(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let cd = P::add(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        P::widen(P::add(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd)))
    }
}

/// `lines`, which the compiler may not read before [`end_of_row`] of the row before: it would multiply all rows at once, and has not so
/// many registers.
#[inline]
#[expect(clippy::pointers_in_nomem_asm_block, reason = "nothing is read through it there")]
fn next_row(mut lines: *const Line) -> *const Line {
    // SAFETY: there are no instructions.
    unsafe { asm!("/* {0} */", inout(reg) lines, options(nomem, nostack, preserves_flags)) };
    lines
}

/// `dots`, which the compiler may not leave for later.
#[inline]
#[target_feature(enable = "avx2")]
fn end_of_row(mut dots: __m256i) -> __m256i {
    // SAFETY: there are no instructions.
    unsafe { asm!("/* {0} */", inout(ymm_reg) dots, options(nomem, nostack, preserves_flags)) };
    dots
}
