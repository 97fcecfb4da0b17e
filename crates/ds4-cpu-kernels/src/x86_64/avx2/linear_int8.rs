//! Matrix product of rounded activations with affine weights.
//!
//! Up to four rows of activations multiply weights as they are stored. More share a panel in which four elements of each of
//! sixteen weight rows lie side by side, and so do a few where groups are small. Sums within a group are exact, and groups are
//! added in the order that `scalar/linear_int8.rs` states, so all ways agree with it to the last bit.

use std::arch::x86_64::*;
use std::ops::Range;

use bytemuck::cast_slice;

use super::lanes::LANES;
use super::linear_int8_few::{self as few, FEW, SMALLEST_GROUP};
use super::linear_int8_panel::{COLUMNS, PANEL, Panel, PanelRows, add_groups};
use super::linear_int8_scales::ScalePanel;
use super::linear_int8_stored::{BLOCK, copy_padded};
use super::packing::{Bits4, Bits8, Packing};
use crate::AffineMatrix;
use crate::disjoint::Columns;
use crate::prefetch::{self, Path};
use crate::quantised::QuantisedRows;

/// Rows of a block at most.
pub(crate) const ROWS: usize = 128;

/// Bytes that weights are at least fetched ahead of use: what a thread reads while memory answers.
const AHEAD: usize = 4096;

/// `out[i, j]` = `x[i]` * row `columns[j]` of `w`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn block(
    x: QuantisedRows<'_>,
    w: AffineMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    path: Path,
    out: &mut Columns<'_, f32>,
) {
    if w.bits == 4 {
        of_width::<Bits4>(x, w, k, columns, path, out);
    } else {
        of_width::<Bits8>(x, w, k, columns, path, out);
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
    /// The first of the rows that are fetched meanwhile.
    fetched: *const u8,
}

impl<'a, const N: usize> StoredRows<'a, N> {
    /// The first `N` rows of all in `bytes`, each `width` bytes long. Those `ahead` rows further on are fetched meanwhile.
    ///
    /// A last block may reach into the next row: activations are zero there. Where the matrix has fewer rows or ends within
    /// such a block, `spare` takes a copy with zeros in the gaps.
    pub(crate) fn new(bytes: &'a [u8], width: usize, ahead: usize, spare: &'a mut Vec<u8>) -> Self {
        let padded = width.next_multiple_of(BLOCK);
        let fetched = bytes.as_ptr().wrapping_add(ahead.wrapping_mul(width));
        let reach = (N - 1) * width + padded;
        if bytes.len() >= reach {
            return Self { bytes: &bytes[..reach], width, blocks: padded / BLOCK, fetched };
        }
        copy_padded(bytes, width, N, padded, spare);
        Self { bytes: spare, width: padded, blocks: padded / BLOCK, fetched }
    }

    /// The blocks of the groups `some`, each of `size` elements, of which a block has `per_block`.
    #[inline]
    pub(crate) fn of_groups(self, some: &Range<usize>, size: usize, per_block: usize) -> Blocks<'a, N> {
        let first = some.start * size / per_block;
        let count = (some.end * size).div_ceil(per_block) - first;
        assert!(first + count <= self.blocks, "a weight row has no block {first} + {count}");
        let fetched = self.fetched.wrapping_add(first * N * BLOCK);
        Blocks { rows: &self.bytes[first * BLOCK..], width: self.width, count, fetched }
    }
}

/// Some blocks of `N` weight rows.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a, const N: usize> {
    /// From the first block of the first row to the end of the last row.
    rows: &'a [u8],
    width: usize,
    count: usize,
    /// What is fetched meanwhile.
    fetched: *const u8,
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
        // SAFETY: within the rows, as `StoredRows::of_groups` found and the caller promises.
        unsafe { _mm256_loadu_si256(self.at(c, at).cast()) }
    }

    /// A half of block `at` of columns `c` and `c + 4`.
    ///
    /// # Safety
    /// `c + 4` is below `N`, `at` below the count and `half` below 2. The machine has AVX2.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn half_of_two(&self, c: usize, at: usize, half: usize) -> __m256i {
        // SAFETY: within the rows, as `StoredRows::of_groups` found and the caller promises.
        unsafe {
            let low = _mm_loadu_si128(self.at(c, at).add(16 * half).cast());
            _mm256_set_m128i(_mm_loadu_si128(self.at(c + 4, at).add(16 * half).cast()), low)
        }
    }

    /// Tells the cache, when block `at` is used, that as many bytes of the rows ahead will be read soon.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn prefetch(&self, at: usize) {
        prefetch::lines(self.fetched.wrapping_add(at * N * BLOCK), N * BLOCK);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn of_width<P: Packing>(
    x: QuantisedRows<'_>,
    w: AffineMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    path: Path,
    out: &mut Columns<'_, f32>,
) {
    if x.len() == 1 || x.len() <= FEW && w.group >= SMALLEST_GROUP {
        few::block::<P>(x, w, k, columns, path, out);
    } else {
        several_rows::<P>(x, w, k, columns, path, out);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn several_rows<P: Packing>(
    x: QuantisedRows<'_>,
    w: AffineMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    path: Path,
    out: &mut Columns<'_, f32>,
) {
    let (groups, width) = (k / w.group, k * w.bits as usize / 8);
    let chunk = PANEL * P::BLOCK / w.group;
    let bytes: &[u8] = cast_slice(w.packed);
    let mut spare = Vec::new();
    let mut scales = [ScalePanel::new(), ScalePanel::new()];
    let mut panel = Panel::new();
    let mut sums = [[0.0; COLUMNS]; ROWS];
    let sums = &mut sums[..x.len()];
    for n in columns.clone().step_by(COLUMNS) {
        let ahead = path.ahead(n, rows_ahead::<COLUMNS>(width));
        let stored = StoredRows::<COLUMNS>::new(&bytes[n * width..], width, ahead, &mut spare);
        sums.fill([0.0; COLUMNS]);
        for first in (0..groups).step_by(chunk) {
            let some = first..groups.min(first + chunk);
            for (scales, n) in scales.iter_mut().zip([n, n + LANES]) {
                scales.fill(w, n..columns.end, groups, some.clone(), ahead);
            }
            let blocks = stored.of_groups(&some, w.group, P::BLOCK);
            panel.fill::<P>(blocks);
            let call = PanelRows { x, groups: some, size: w.group, panel: &panel, blocks, scales: &scales };
            add_groups::<P>(&call, sums);
        }
        for (i, sums) in sums.iter().enumerate() {
            out.put(i, n - columns.start, sums);
        }
    }
}
