//! One row of rounded activations times eight weight rows as they are stored.

use std::arch::x86_64::*;
use std::ops::Range;

use bytemuck::must_cast_ref;

use super::lanes::LANES;
use super::linear_int8::{Blocks, add_group};
use super::linear_int8_scales::ScalePanel;
use super::packing::Packing;
use crate::quantised::{Line, QuantisedRow};

/// `sums` += `x` times the groups `groups`, whose weights are `w` and whose scales are `scales`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn add_groups<P: Packing>(
    x: QuantisedRow<'_>,
    w: Blocks<'_, LANES>,
    scales: &ScalePanel,
    groups: Range<usize>,
    group: usize,
    sums: &mut [f32; LANES],
) {
    let x = x.part(groups, group, P::BLOCK);
    match group / P::BLOCK {
        0 => half_blocks::<P>(x, w, scales, sums),
        1 => blocks::<P, 1>(x, w, scales, sums),
        2 => blocks::<P, 2>(x, w, scales, sums),
        _ => blocks::<P, 4>(x, w, scales, sums),
    }
}

/// For groups of `N` blocks.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn blocks<P: Packing, const N: usize>(
    x: QuantisedRow<'_>,
    w: Blocks<'_, LANES>,
    scales: &ScalePanel,
    sums: &mut [f32; LANES],
) {
    let scales = scales.scales.iter().zip(&scales.biases);
    let x_scales = x.scales.iter().zip(x.sums);
    let lines = x.lines.as_chunks::<N>().0;
    for (g, ((lines, (scales, biases)), (x_scale, x_sum))) in
        lines.iter().zip(scales).zip(x_scales).enumerate()
    {
        // Sums of 16 bits have no room for a second block.
        let joined = if P::STEPS == 8 { 1 } else { N };
        let mut dot = _mm256_setzero_si256();
        for (i, lines) in lines.chunks_exact(joined).enumerate() {
            let [low, high] = products::<P>(lines, w, g * N + i * joined);
            dot = _mm256_add_epi32(dot, _mm256_add_epi32(low, high));
        }
        add_group(sums, dot, scales, biases, *x_scale, *x_sum);
    }
}

/// For groups of half a block: each is in one half of the vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn half_blocks<P: Packing>(
    x: QuantisedRow<'_>,
    w: Blocks<'_, LANES>,
    scales: &ScalePanel,
    sums: &mut [f32; LANES],
) {
    for (i, line) in x.lines.iter().enumerate() {
        let halves = products::<P>(std::slice::from_ref(line), w, i);
        for (g, dot) in (2 * i..x.scales.len()).zip(halves) {
            add_group(sums, dot, &scales.scales[g], &scales.biases[g], x.scales[g], x.sums[g]);
        }
    }
}

/// Sums of products of eight columns with `x`, from block `at` on: over the lower and over the upper halves of the blocks.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn products<P: Packing>(x: &[Line], w: Blocks<'_, LANES>, at: usize) -> [__m256i; 2] {
    for i in 0..x.len() {
        w.prefetch(at + i);
    }
    let first = four::<P, 0>(x, w, at);
    let second = four::<P, 4>(x, w, at);
    [_mm256_permute2x128_si256::<0x20>(first, second), _mm256_permute2x128_si256::<0x31>(first, second)]
}

/// In each half, the sums of the columns from `FIRST` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn four<P: Packing, const FIRST: usize>(x: &[Line], w: Blocks<'_, LANES>, at: usize) -> __m256i {
    let mut sums = [_mm256_setzero_si256(); LANES / 2];
    for (i, line) in x.iter().enumerate() {
        let [even, odd]: &[__m256i; 2] = must_cast_ref(line);
        for (c, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the column is below 8, a line of activations exists for each block, and the features are enabled
            // here.
            let products = unsafe {
                let block = w.block(FIRST + c, at + i);
                P::add(P::multiply(P::low(block), *even), P::multiply(P::high(block), *odd))
            };
            // SAFETY: the features are enabled here.
            *sum = if i == 0 { products } else { unsafe { P::add(*sum, products) } };
        }
    }
    let [a, b, c, d] = sums;
    // SAFETY: the features are enabled here.
    unsafe {
        let ab = P::add(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let cd = P::add(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        P::widen(P::add(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd)))
    }
}
