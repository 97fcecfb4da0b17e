//! Matrix product of rounded activations with affine weights, eight columns of output at a time.
//!
//! One row of activations multiplies weight rows as they are stored. More rows share a panel in which four elements of
//! each of eight weight rows lie side by side. Sums within a group are exact, and groups are added in the order that
//! `scalar/linear_int8.rs` states, so both ways agree with it to the last bit.

use std::arch::x86_64::*;
use std::ops::Range;

use super::lanes::{LANES, load};
use super::linear_int8_panel::{self as panel, PANEL, Panel};
use super::linear_int8_row as single;
use super::linear_int8_scales::ScalePanel;
use super::packing::{Bits4, Bits8, Packing};
use crate::AffineMatrix;
use crate::disjoint::Columns;
use crate::prefetch;
use crate::quantised::QuantisedRows;

/// Rows of a block at most.
pub(crate) const ROWS: usize = 128;

/// Bytes of a weight row that are unpacked in one go.
const BLOCK: usize = 32;

/// Bytes that weights are at least fetched ahead of use: what a thread reads while memory answers.
const AHEAD: usize = 4096;

/// Groups whose scales are turned at a time for a single row.
const SINGLE_GROUPS: usize = 16;

/// `out[i, j]` = `x[i]` * row `columns[j]` of `w`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn block(
    x: QuantisedRows<'_>,
    w: AffineMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    out: &mut Columns<'_, f32>,
) {
    if w.bits == 4 {
        of_width::<Bits4>(x, w, k, columns, out);
    } else {
        of_width::<Bits8>(x, w, k, columns, out);
    }
}

/// Weight rows of `width` bytes that are fetched ahead of use, where `N` are used at a time: the last line of these is needed
/// as soon as the first one, so that memory needs the time of one more `N` rows.
pub(crate) fn rows_ahead<const N: usize>(width: usize) -> usize {
    (AHEAD / width).max(2 * N)
}

/// `N` weight rows, one after the other, in whole blocks.
#[derive(Clone, Copy)]
pub(crate) struct StoredRows<'a, const N: usize> {
    bytes: &'a [u8],
    width: usize,
    /// Blocks of a row.
    blocks: usize,
    /// Bytes from the first of all to the first that is fetched.
    ahead: usize,
}

impl<'a, const N: usize> StoredRows<'a, N> {
    /// The first `N` rows of all in `bytes`, each `width` bytes long.
    ///
    /// A last block may reach into the next row: activations are zero there. Where the matrix has fewer rows or ends within
    /// such a block, `spare` takes a copy with zeros in the gaps.
    pub(crate) fn new(bytes: &'a [u8], width: usize, spare: &'a mut Vec<u8>) -> Self {
        let padded = width.next_multiple_of(BLOCK);
        let ahead = rows_ahead::<N>(width) * width;
        let reach = (N - 1) * width + padded;
        if bytes.len() >= reach {
            return Self { bytes: &bytes[..reach], width, blocks: padded / BLOCK, ahead };
        }
        spare.clear();
        spare.resize(N * padded, 0);
        for (to, from) in spare.chunks_exact_mut(padded).zip(bytes.chunks_exact(width)) {
            to[..width].copy_from_slice(from);
        }
        Self { bytes: spare, width: padded, blocks: padded / BLOCK, ahead }
    }

    /// The blocks from `first` on, `count` of each row.
    #[inline]
    pub(crate) fn blocks(self, first: usize, count: usize) -> Blocks<'a, N> {
        assert!(first + count <= self.blocks, "a weight row has no block {first} + {count}");
        let ahead = self.ahead + first * (N - 1) * BLOCK;
        Blocks { rows: &self.bytes[first * BLOCK..], width: self.width, count, ahead }
    }
}

/// Some blocks of `N` weight rows.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a, const N: usize> {
    /// From the first block of the first row to the end of the last row.
    rows: &'a [u8],
    width: usize,
    count: usize,
    /// Bytes from the first of `rows` to the first that is fetched.
    ahead: usize,
}

impl<const N: usize> Blocks<'_, N> {
    /// Blocks of each row.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn at(&self, c: usize, at: usize) -> *const u8 {
        debug_assert!(c < N && at < self.count && c * self.width + (at + 1) * BLOCK <= self.rows.len());
        self.rows.as_ptr().wrapping_add(c * self.width + at * BLOCK)
    }

    /// Block `at` of column `c`.
    ///
    /// # Safety
    /// `c` is below `N` and `at` below the count. The machine has AVX2.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn block(&self, c: usize, at: usize) -> __m256i {
        // SAFETY: within the rows, as `StoredRows::blocks` found and the caller promises.
        unsafe { _mm256_loadu_si256(self.at(c, at).cast()) }
    }

    /// A half of block `at` of columns `c` and `c + 4`.
    ///
    /// # Safety
    /// `c` is below 4, `at` below the count and `half` below 2. The machine has AVX2.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn half_of_two(&self, c: usize, at: usize, half: usize) -> __m256i {
        // SAFETY: within the rows, as `StoredRows::blocks` found and the caller promises.
        unsafe {
            let low = _mm_loadu_si128(self.at(c, at).add(16 * half).cast());
            _mm256_set_m128i(_mm_loadu_si128(self.at(c + 4, at).add(16 * half).cast()), low)
        }
    }

    /// Tells the cache, when block `at` is used, that as many bytes further down will be read soon.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn prefetch(&self, at: usize) {
        prefetch::lines(self.rows.as_ptr().wrapping_add(self.ahead + at * N * BLOCK), N * BLOCK);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn of_width<P: Packing>(
    x: QuantisedRows<'_>,
    w: AffineMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    out: &mut Columns<'_, f32>,
) {
    let (groups, width) = (k / w.group, k * w.bits as usize / 8);
    let chunk = if x.len() == 1 { SINGLE_GROUPS } else { PANEL * P::BLOCK / w.group };
    let bytes: &[u8] = bytemuck::cast_slice(w.packed);
    let mut spare = Vec::new();
    let mut scales = ScalePanel::new();
    let mut weights = Panel::new();
    let mut sums = [[0.0; LANES]; ROWS];
    for n in columns.clone().step_by(LANES) {
        let eight = StoredRows::<LANES>::new(&bytes[n * width..], width, &mut spare);
        sums[..x.len()].fill([0.0; LANES]);
        for first in (0..groups).step_by(chunk) {
            let some = first..groups.min(first + chunk);
            scales.fill(w, n..columns.end, groups, some.clone());
            let start = first * w.group / P::BLOCK;
            let blocks = eight.blocks(start, (some.end * w.group).div_ceil(P::BLOCK) - start);
            if x.len() == 1 {
                single::add_groups::<P>(x.row(0), blocks, &scales, some, w.group, &mut sums[0]);
            } else {
                weights.fill::<P>(blocks);
                panel::add_groups::<P>(x, &weights, &scales, some, w.group, &mut sums[..x.len()]);
            }
        }
        let at = n - columns.start;
        let count = LANES.min(columns.end - n);
        for (i, sums) in sums[..x.len()].iter().enumerate() {
            out.row(i)[at..at + count].copy_from_slice(&sums[..count]);
        }
    }
}

/// Adds a group to the results of eight columns: `dot` are its sums of products of integers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn add_group(
    acc: __m256,
    dot: __m256i,
    scales: &[f32; LANES],
    biases: &[f32; LANES],
    x_scale: f32,
    x_sum: f32,
) -> __m256 {
    let bias = _mm256_mul_ps(load(biases), _mm256_set1_ps(x_sum));
    let group = _mm256_fmadd_ps(load(scales), _mm256_cvtepi32_ps(dot), bias);
    _mm256_fmadd_ps(group, _mm256_set1_ps(x_scale), acc)
}
