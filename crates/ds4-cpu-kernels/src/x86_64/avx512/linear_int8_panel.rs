//! Weights of sixteen columns, unpacked so that a vector holds neighbouring elements of all of them.

use std::arch::x86_64::*;

use bytemuck::Zeroable;

use super::linear_int8_scales::transpose;
use crate::x86_64::avx2::linear_int8::Blocks;
use crate::x86_64::avx2::packing::{Bits4, Bits8, Packing};

/// Columns of a panel.
pub(super) const COLUMNS: usize = 16;

/// Lines of a panel: 16 KiB, which leaves room for activations in the L1 cache.
pub(super) const LINES: usize = 16;

/// Vectors of low parts, and of high parts, of a line.
pub(super) const PAIRS: usize = 8;

/// Weights of one width, for vectors of 64 bytes.
pub(super) trait Dot: Packing {
    /// Even elements.
    ///
    /// # Safety
    /// The machine has AVX-512 (F, BW).
    unsafe fn even(packed: __m512i) -> __m512i;

    /// Odd elements.
    ///
    /// # Safety
    /// The machine has AVX-512 (F, BW).
    unsafe fn odd(packed: __m512i) -> __m512i;

    /// `sum` and the products of neighbours.
    ///
    /// # Safety
    /// The machine has AVX-512 with VNNI.
    unsafe fn dot(sum: __m512i, weights: __m512i, x: __m512i) -> __m512i;
}

impl Dot for Bits4 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn even(packed: __m512i) -> __m512i {
        _mm512_and_si512(packed, _mm512_set1_epi8(15))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn odd(packed: __m512i) -> __m512i {
        _mm512_and_si512(_mm512_srli_epi16::<4>(packed), _mm512_set1_epi8(15))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn dot(sum: __m512i, weights: __m512i, x: __m512i) -> __m512i {
        _mm512_dpbusd_epi32(sum, weights, x)
    }
}

impl Dot for Bits8 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn even(packed: __m512i) -> __m512i {
        _mm512_and_si512(packed, _mm512_set1_epi16(255))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn odd(packed: __m512i) -> __m512i {
        _mm512_srli_epi16::<8>(packed)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn dot(sum: __m512i, weights: __m512i, x: __m512i) -> __m512i {
        _mm512_dpwssd_epi32(sum, weights, x)
    }
}

/// Some lines' weights.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
pub(super) struct Panel {
    /// For each four bytes of a column: even and odd elements of all columns.
    pairs: [[[__m512i; 2]; PAIRS]; LINES],
    lines: usize,
}

impl Panel {
    /// Unpacks `blocks`, at most [`LINES`] of each column.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
    pub(super) fn fill<P: Dot>(&mut self, blocks: Blocks<'_, COLUMNS>) {
        self.lines = blocks.count();
        for (line, pairs) in self.pairs[..self.lines].iter_mut().enumerate() {
            blocks.prefetch(line);
            let (low, high) = halves(&blocks, line);
            for (t, pair) in pairs.iter_mut().enumerate() {
                let packed = quarter(low[t % 4], high[t % 4], t / 4);
                // SAFETY: the features are enabled here.
                *pair = unsafe { [P::even(packed), P::odd(packed)] };
            }
        }
    }

    /// The vectors, in the order of the elements.
    pub(super) fn pairs(&self) -> &[[__m512i; 2]] {
        self.pairs[..self.lines].as_flattened()
    }
}

/// For each `t` below 4, bytes `4 * t..` of both halves of block `at`: of the lower and of the upper columns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
pub(super) fn halves(blocks: &Blocks<'_, COLUMNS>, at: usize) -> ([__m512i; 4], [__m512i; 4]) {
    let mut columns = [_mm512_setzero_si512(); PAIRS];
    for (i, two) in columns.iter_mut().enumerate() {
        let c = i % 4 + i / 4 * 8;
        // SAFETY: the columns are below 16, `at` below the count, and the features are enabled here.
        let (a, b) = unsafe { (blocks.block(c, at), blocks.block(c + 4, at)) };
        *two = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b);
    }
    let [a, b, c, d, e, f, g, h] = columns;
    (transpose([a, b, c, d]), transpose([e, f, g, h]))
}

/// Of all columns, the bytes that `low` and `high` have of one half of a block.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn quarter(low: __m512i, high: __m512i, half: usize) -> __m512i {
    if half == 0 {
        _mm512_shuffle_i64x2::<0b10_00_10_00>(low, high)
    } else {
        _mm512_shuffle_i64x2::<0b11_01_11_01>(low, high)
    }
}
