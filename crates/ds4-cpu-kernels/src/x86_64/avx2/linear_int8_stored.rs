//! Weight rows as they are stored, several times eight, with their scales and biases.

use std::arch::x86_64::*;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::cast_slice;
use ds4_dtype::{Floats, bf16, f16};

use super::lanes::{LANES, load, widen_bf16, widen_f16};
use crate::AffineMatrix;
use crate::prefetch::{self, Path};

/// Bytes of a weight row that are unpacked in one go.
pub(super) const BLOCK: usize = 32;

/// Vectors of groups of eight weight rows that are worked on before results are added: those of rows of 4096 elements in groups of
/// 64, or of several times eight shorter rows. Activations and results must fit into the L1 cache.
pub(super) const VECTORS: usize = 8;

/// Bytes that are fetched ahead of use: what a thread reads while memory answers.
const AHEAD: usize = 8192;

/// Weight rows one after the other, several times eight.
///
/// Blocks and scales may be read beyond the end of a row: what stands there meets activations that are zero.
pub(super) struct Stored<'a> {
    rows: usize,
    /// Bytes of a row.
    width: usize,
    bytes: *const u8,
    /// Bytes from one row to the next.
    stride: usize,
    factors: Factors,
    /// Scales from one row to the next.
    groups: usize,
    /// For each eight, the first of the rows that are fetched meanwhile.
    fetched: [*const u8; VECTORS],
    borrow: PhantomData<&'a [u8]>,
}

impl<'a> Stored<'a> {
    /// Rows `rows` of `w`. Those are fetched meanwhile that are read next on `path`.
    pub(super) fn new(
        w: AffineMatrix<'a>,
        shape: &Shape,
        rows: Range<usize>,
        path: Path,
        spare: &'a mut Spare,
    ) -> Self {
        let bytes: &[u8] = cast_slice(w.packed);
        let mut fetched = [bytes.as_ptr(); VECTORS];
        for (fetched, n) in fetched.iter_mut().zip(rows.clone().step_by(LANES)) {
            let next = n.wrapping_add(path.ahead(n, (AHEAD / shape.width).max(1)));
            *fetched = fetched.wrapping_add(next.wrapping_mul(shape.width));
            if let Some(factors) = shape.factors {
                factors.prefetch(next.wrapping_mul(shape.groups), LANES.min(rows.end - n) * shape.groups);
            }
        }
        let in_place = shape.factors.filter(|_| shape.fits(w, &rows));
        if in_place.is_none() {
            spare.copy(w, &rows, shape);
        }
        let (bytes, stride, factors, groups) = match in_place {
            Some(factors) => (
                bytes[rows.start * shape.width..].as_ptr(),
                shape.width,
                factors.after(rows.start * shape.groups),
                shape.groups,
            ),
            None => (
                spare.bytes.as_ptr(),
                shape.padded_width,
                Factors::F32(spare.scales.as_ptr(), spare.biases.as_ptr()),
                shape.padded_groups,
            ),
        };
        let (rows, width) = (rows.len(), shape.width);
        Self { rows, width, bytes, stride, factors, groups, fetched, borrow: PhantomData }
    }

    /// How many times eight rows there are, the last perhaps fewer.
    pub(super) fn eights(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Rows of eight `e`.
    pub(super) fn rows_of(&self, e: usize) -> usize {
        LANES.min(self.rows - e * LANES)
    }

    /// Block `at` of row `c` and those after it.
    ///
    /// # Safety
    /// `c` is a row, or the one after an odd number of rows, and `at` below the number of blocks.
    #[inline]
    pub(super) unsafe fn blocks(&self, c: usize, at: usize) -> *const __m256i {
        // SAFETY: by the caller's promise.
        unsafe { self.bytes.add(c * self.stride + at * BLOCK).cast() }
    }

    /// Eight scales and biases of row `c`, from group `g` on.
    ///
    /// # Safety
    /// As for [`Self::blocks`], and `g` is below the number of groups. The machine has AVX2.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn factors(&self, c: usize, g: usize) -> [__m256; 2] {
        // SAFETY: by the caller's promise.
        let [[scales], [biases]] = unsafe { self.factors.eight([c * self.groups + g]) };
        [scales, biases]
    }

    /// Four scales and biases of row `c` and four of the next, from group `g` on.
    ///
    /// # Safety
    /// As for [`Self::factors`].
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn factors_of_two(&self, c: usize, g: usize) -> [__m256; 2] {
        let at = c * self.groups + g;
        // SAFETY: by the caller's promise.
        let [scales, biases] = unsafe { self.factors.eight([at, at + self.groups]) };
        [
            _mm256_permute2f128_ps::<0x20>(scales[0], scales[1]),
            _mm256_permute2f128_ps::<0x20>(biases[0], biases[1]),
        ]
    }

    /// Where the blocks stand that are fetched when those of row `c` of eight `e` are used, from block `at` on.
    #[inline]
    pub(super) fn fetched(&self, e: usize, c: usize, at: usize) -> *const u8 {
        self.fetched[e].wrapping_add(c * self.width + at * BLOCK)
    }
}

/// What a row has, and what is read of it.
pub(super) struct Shape {
    width: usize,
    padded_width: usize,
    groups: usize,
    padded_groups: usize,
    /// Those of the whole matrix.
    factors: Option<Factors>,
}

impl Shape {
    /// For rows of `k` elements that are read in `blocks` blocks.
    pub(super) fn new(w: AffineMatrix<'_>, k: usize, blocks: usize) -> Self {
        let groups = k / w.group;
        Self {
            width: k * w.bits as usize / 8,
            padded_width: blocks * BLOCK,
            groups,
            padded_groups: groups.next_multiple_of(LANES),
            factors: Factors::of(w),
        }
    }

    /// The first of `rows` of `w`, at most `eights` times eight: those that can be read where they stand, or the last eight.
    pub(super) fn next(&self, w: AffineMatrix<'_>, rows: Range<usize>, eights: usize) -> Range<usize> {
        let some = rows.start..rows.end.min(rows.start + eights * LANES);
        if some.len() <= LANES || self.fits(w, &some) {
            some
        } else {
            some.start..some.start + (some.len() - 1) / LANES * LANES
        }
    }

    /// Rows that are read for `count`: they may be read in pairs if they are not whole vectors.
    fn rows(&self, count: usize) -> usize {
        if self.groups == self.padded_groups { count } else { count.next_multiple_of(2) }
    }

    /// Whether `rows` of `w` can be read where they stand.
    fn fits(&self, w: AffineMatrix<'_>, rows: &Range<usize>) -> bool {
        let last = rows.start + self.rows(rows.len()) - 1;
        last * self.width + self.padded_width <= 4 * w.packed.len()
            && last * self.groups + self.padded_groups <= w.scales.len()
    }
}

/// Where scales and biases stand.
#[derive(Clone, Copy)]
enum Factors {
    F32(*const f32, *const f32),
    F16(*const f16, *const f16),
    Bf16(*const bf16, *const bf16),
}

impl Factors {
    /// Those of `w`, if all are in one format.
    #[inline]
    fn of(w: AffineMatrix<'_>) -> Option<Self> {
        match (w.scales, w.biases) {
            (Floats::F32(scales), Floats::F32(biases)) => Some(Self::F32(scales.as_ptr(), biases.as_ptr())),
            (Floats::F16(scales), Floats::F16(biases)) => Some(Self::F16(scales.as_ptr(), biases.as_ptr())),
            (Floats::Bf16(scales), Floats::Bf16(biases)) => {
                Some(Self::Bf16(scales.as_ptr(), biases.as_ptr()))
            }
            _ => None,
        }
    }

    #[inline]
    fn after(self, count: usize) -> Self {
        match self {
            Self::F32(scales, biases) => Self::F32(scales.wrapping_add(count), biases.wrapping_add(count)),
            Self::F16(scales, biases) => Self::F16(scales.wrapping_add(count), biases.wrapping_add(count)),
            Self::Bf16(scales, biases) => Self::Bf16(scales.wrapping_add(count), biases.wrapping_add(count)),
        }
    }

    /// Tells the cache that `count` from `at` on will be read soon.
    #[inline]
    fn prefetch(self, at: usize, count: usize) {
        let (scales, biases, size): (*const u8, *const u8, usize) = match self.after(at) {
            Self::F32(scales, biases) => (scales.cast(), biases.cast(), size_of::<f32>()),
            Self::F16(scales, biases) => (scales.cast(), biases.cast(), size_of::<f16>()),
            Self::Bf16(scales, biases) => (scales.cast(), biases.cast(), size_of::<bf16>()),
        };
        prefetch::lines(scales, size * count);
        prefetch::lines(biases, size * count);
    }

    /// Eight scales, and eight biases, from each of the places on.
    ///
    /// # Safety
    /// They exist. The machine has AVX2 and F16C.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn eight<const N: usize>(self, places: [usize; N]) -> [[__m256; N]; 2] {
        let mut eight = [[_mm256_setzero_ps(); N]; 2];
        for (i, at) in places.into_iter().enumerate() {
            // SAFETY: by the caller's promise.
            unsafe {
                match self {
                    Self::F32(scales, biases) => {
                        eight[0][i] = load(&*scales.add(at).cast());
                        eight[1][i] = load(&*biases.add(at).cast());
                    }
                    Self::F16(scales, biases) => {
                        eight[0][i] = widen_f16(&*scales.add(at).cast());
                        eight[1][i] = widen_f16(&*biases.add(at).cast());
                    }
                    Self::Bf16(scales, biases) => {
                        eight[0][i] = widen_bf16(&*scales.add(at).cast());
                        eight[1][i] = widen_bf16(&*biases.add(at).cast());
                    }
                }
            }
        }
        eight
    }
}

/// A copy of rows that cannot be read where they stand, with zeros after each: the last of a matrix, or, which no checkpoint has, those
/// with scales and biases in two formats.
#[derive(Default)]
pub(super) struct Spare {
    bytes: Vec<u8>,
    scales: Vec<f32>,
    biases: Vec<f32>,
}

thread_local! {
    /// What the last call on this thread used, for the next to use again.
    static SPARE: RefCell<Spare> = RefCell::default();
}

impl Spare {
    /// Calls `work` with this thread's memory.
    #[inline]
    pub(super) fn with(work: impl FnOnce(&mut Self)) {
        let mut spare = SPARE.take();
        work(&mut spare);
        SPARE.replace(spare);
    }

    #[cold]
    fn copy(&mut self, w: AffineMatrix<'_>, rows: &Range<usize>, shape: &Shape) {
        let Shape { width, padded_width, groups, padded_groups, .. } = *shape;
        let count = shape.rows(rows.len());
        let bytes = &cast_slice(w.packed)[rows.start * width..rows.end * width];
        copy_padded(bytes, width, count, padded_width, &mut self.bytes);
        for (to, from) in [(&mut self.scales, w.scales), (&mut self.biases, w.biases)] {
            to.clear();
            to.resize(count * padded_groups, 0.0);
            for (to, row) in to.chunks_exact_mut(padded_groups).zip(rows.clone()) {
                for (to, at) in to.iter_mut().zip(row * groups..(row + 1) * groups) {
                    *to = from.get(at);
                }
            }
        }
    }
}

/// `to` = the first `count` rows of `bytes`, each of `width` and then zeros up to `padded`. Those that lack are zeros.
pub(super) fn copy_padded(bytes: &[u8], width: usize, count: usize, padded: usize, to: &mut Vec<u8>) {
    to.clear();
    to.resize(count * padded, 0);
    for (to, from) in to.chunks_exact_mut(padded).zip(bytes.chunks_exact(width)) {
        to[..width].copy_from_slice(from);
    }
}
