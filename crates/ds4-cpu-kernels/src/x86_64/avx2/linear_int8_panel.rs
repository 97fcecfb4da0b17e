//! Several rows of rounded activations times a panel: weights unpacked so that a vector holds four (or, of 8-bit weights,
//! two) elements of each of eight columns.

use std::arch::x86_64::*;
use std::ops::Range;

use bytemuck::cast_slice;

use super::lanes::{LANES, load, store, transpose};
use super::linear_int8::{Blocks, add_group};
use super::linear_int8_scales::ScalePanel;
use super::packing::Packing;
use crate::quantised::{QuantisedRow, QuantisedRows};

/// Blocks of a panel: 8 KiB, which leaves room for activations in the L1 cache.
pub(crate) const PANEL: usize = 16;

/// Panel vectors of a block.
const VECTORS: usize = 16;

pub(crate) struct Panel([[__m256i; VECTORS]; PANEL]);

impl Panel {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn new() -> Self {
        Self([[_mm256_setzero_si256(); VECTORS]; PANEL])
    }

    /// The vectors, in the order of the elements: low parts, high parts, and so on.
    pub(crate) fn vectors(&self) -> &[__m256i] {
        self.0.as_flattened()
    }

    /// Unpacks `blocks`, at most [`PANEL`] of each row.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn fill<P: Packing>(&mut self, blocks: Blocks<'_, LANES>) {
        for (i, out) in self.0[..blocks.count()].iter_mut().enumerate() {
            blocks.prefetch(i);
            for half in 0..2 {
                let mut pairs = [_mm256_setzero_ps(); LANES / 2];
                for (c, pair) in pairs.iter_mut().enumerate() {
                    // SAFETY: the arguments are within their ranges, and the features are enabled here.
                    *pair = _mm256_castsi256_ps(unsafe { blocks.half_of_two(c, i, half) });
                }
                for (t, four) in transpose(pairs).into_iter().enumerate() {
                    let four = _mm256_castps_si256(four);
                    let at = 2 * (4 * half + t);
                    // SAFETY: the features are enabled here.
                    (out[at], out[at + 1]) = unsafe { (P::low(four), P::high(four)) };
                }
            }
        }
    }
}

/// `sums` += rows of `x` times the panel, which holds the groups `groups`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn add_groups<P: Packing>(
    x: QuantisedRows<'_>,
    w: &Panel,
    scales: &ScalePanel,
    groups: Range<usize>,
    group: usize,
    sums: &mut [[f32; LANES]],
) {
    match group {
        32 => tiles::<P, 1>(x, w, scales, groups, sums),
        64 => tiles::<P, 2>(x, w, scales, groups, sums),
        _ => tiles::<P, 4>(x, w, scales, groups, sums),
    }
}

/// The same for groups of `RUNS` times 32.
#[target_feature(enable = "avx2,fma,f16c")]
fn tiles<P: Packing, const RUNS: usize>(
    x: QuantisedRows<'_>,
    w: &Panel,
    scales: &ScalePanel,
    groups: Range<usize>,
    sums: &mut [[f32; LANES]],
) {
    let row = |i: usize| x.row(i).part(groups.clone(), RUNS * 32, P::BLOCK);
    let mut at = 0;
    let (fours, rest) = sums.as_chunks_mut::<4>();
    for sums in fours {
        tile::<P, RUNS, 4>([row(at), row(at + 1), row(at + 2), row(at + 3)], w, scales, sums);
        at += 4;
    }
    let (twos, rest) = rest.as_chunks_mut::<2>();
    for sums in twos {
        tile::<P, RUNS, 2>([row(at), row(at + 1)], w, scales, sums);
        at += 2;
    }
    for sums in rest.as_chunks_mut::<1>().0 {
        tile::<P, RUNS, 1>([row(at)], w, scales, sums);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile<P: Packing, const RUNS: usize, const R: usize>(
    x: [QuantisedRow<'_>; R],
    w: &Panel,
    scales: &ScalePanel,
    sums: &mut [[f32; LANES]; R],
) {
    let groups = x[0].scales.len();
    let panel = w.vectors().chunks_exact(RUNS * P::STEPS);
    let scales = scales.scales[..groups].iter().zip(&scales.biases);
    for (g, (panel, (scales, biases))) in panel.zip(scales).enumerate() {
        let mut dot = [_mm256_setzero_si256(); R];
        for (run, panel) in panel.chunks_exact(P::STEPS).enumerate() {
            // The first partners of low parts; those of high parts lie half a line, 8 words, behind them.
            let first = (g * RUNS + run) * P::STEPS;
            let first = first / VECTORS * VECTORS + first % VECTORS / 2;
            let mut words: [&[i32]; R] = [&[]; R];
            let mut part = [_mm256_setzero_si256(); R];
            for r in 0..R {
                words[r] = &cast_slice(x[r].lines)[first..first + 8 + P::STEPS / 2];
            }
            for s in 0..P::STEPS {
                for r in 0..R {
                    let x = _mm256_set1_epi32(words[r][s % 2 * 8 + s / 2]);
                    // SAFETY: the features are enabled here.
                    part[r] = unsafe { P::add(part[r], P::multiply(panel[s], x)) };
                }
            }
            for r in 0..R {
                // SAFETY: the features are enabled here.
                dot[r] = _mm256_add_epi32(dot[r], unsafe { P::widen(part[r]) });
            }
        }
        for r in 0..R {
            let acc = add_group(load(&sums[r]), dot[r], scales, biases, x[r].scales[g], x[r].sums[g]);
            store(acc, &mut sums[r]);
        }
    }
}
