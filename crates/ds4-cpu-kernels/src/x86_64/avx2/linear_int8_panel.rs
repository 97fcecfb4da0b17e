//! Several rows of rounded activations times a panel: weights unpacked so that a vector holds four (or, of 8-bit weights,
//! two) elements of each of eight columns. Two such vectors lie side by side, for sixteen columns, so that activations that were
//! spread over a vector are multiplied twice.

use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;

use bytemuck::must_cast_ref;

use super::lanes::{LANES, load, store, transpose};
use super::linear_int8::Blocks;
use super::linear_int8_scales::ScalePanel;
use super::packing::Packing;
use crate::quantised::QuantisedRows;

/// Columns of a panel.
pub(super) const COLUMNS: usize = 2 * LANES;

/// Blocks of a panel: 16 KiB, which leaves room for activations in the L1 cache.
pub(super) const PANEL: usize = 16;

/// Pairs of low and high parts of a block.
const PAIRS: usize = 8;

/// Low and high parts of the same bytes: of the lower eight columns and of the upper.
type Pair = [[__m256i; 2]; 2];

pub(super) struct Panel([[Pair; PAIRS]; PANEL]);

impl Panel {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn new() -> Self {
        Self([[[[_mm256_setzero_si256(); 2]; 2]; PAIRS]; PANEL])
    }

    /// Unpacks `blocks`, at most [`PANEL`] of each row.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn fill<P: Packing>(&mut self, blocks: Blocks<'_, COLUMNS>) {
        for (i, pairs) in self.0[..blocks.count()].iter_mut().enumerate() {
            for half in 0..2 {
                for side in 0..2 {
                    let mut columns = [_mm256_setzero_ps(); LANES / 2];
                    for (c, two) in columns.iter_mut().enumerate() {
                        // SAFETY: the arguments are within their ranges, and the features are enabled here.
                        let bytes = unsafe { blocks.half_of_two(side * LANES + c, i, half) };
                        *two = _mm256_castsi256_ps(bytes);
                    }
                    for (t, four) in transpose(columns).into_iter().enumerate() {
                        let four = _mm256_castps_si256(four);
                        let pair = &mut pairs[4 * half + t];
                        // SAFETY: the features are enabled here.
                        (pair[0][side], pair[1][side]) = unsafe { (P::low(four), P::high(four)) };
                    }
                }
            }
        }
    }

    /// The vectors, in the order of the elements.
    fn pairs(&self) -> &[Pair] {
        self.0.as_flattened()
    }
}

/// Rows, and some of their groups.
pub(super) struct PanelRows<'a> {
    pub(super) x: QuantisedRows<'a>,
    pub(super) groups: Range<usize>,
    /// Elements of a group.
    pub(super) size: usize,
    /// Weights of the groups: unpacked, and as they are stored.
    pub(super) panel: &'a Panel,
    pub(super) blocks: Blocks<'a, COLUMNS>,
    /// Scales and biases of the groups, of the lower and of the upper columns.
    pub(super) scales: &'a [ScalePanel; 2],
}

/// `sums` += the products of `call`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn add_groups<P: Packing>(call: &PanelRows<'_>, sums: &mut [[f32; COLUMNS]]) {
    match call.size {
        32 => tiles::<P, 1>(call, sums),
        64 => tiles::<P, 2>(call, sums),
        _ => tiles::<P, 4>(call, sums),
    }
}

/// The same for groups of `RUNS` times 32.
#[target_feature(enable = "avx2,fma,f16c")]
fn tiles<P: Packing, const RUNS: usize>(call: &PanelRows<'_>, sums: &mut [[f32; COLUMNS]]) {
    for (t, sums) in sums.chunks_mut(4).enumerate() {
        match sums.len() {
            4 => tile::<P, RUNS, 4>(call, 4 * t, sums),
            3 => tile::<P, RUNS, 3>(call, 4 * t, sums),
            2 => tile::<P, RUNS, 2>(call, 4 * t, sums),
            _ => tile::<P, RUNS, 1>(call, 4 * t, sums),
        }
    }
}

/// The same for `R` rows from `at` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile<P: Packing, const RUNS: usize, const R: usize>(
    call: &PanelRows<'_>,
    at: usize,
    sums: &mut [[f32; COLUMNS]],
) {
    let row = |r: usize| call.x.row(at + r).part(call.groups.clone(), RUNS * 32, P::BLOCK);
    let mut x = [row(0); R];
    x.iter_mut().enumerate().for_each(|(r, x)| *x = row(r));
    // Pairs of a run, and of a group.
    let (run, group) = (P::STEPS / 2, RUNS * P::STEPS / 2);
    for (g, pairs) in call.panel.pairs().chunks_exact(group).take(call.groups.len()).enumerate() {
        if at == 0 {
            // The weights after these: while the panel was filled, memory was busy enough.
            for block in (g * group).div_ceil(PAIRS)..((g + 1) * group).div_ceil(PAIRS) {
                call.blocks.prefetch(block);
            }
        }
        let mut dots = [[_mm256_setzero_si256(); 2]; R];
        for (i, pairs) in pairs.chunks_exact(run).enumerate() {
            let first = g * group + i * run;
            let mut words: [[&[i32]; 2]; R] = [[&[]; 2]; R];
            for r in 0..R {
                // The partners of low parts are half a line, those of high parts the other half.
                let [even, odd]: &[[i32; PAIRS]; 2] = must_cast_ref(&x[r].lines[first / PAIRS]);
                let range = first % PAIRS..first % PAIRS + run;
                words[r] = [&even[range.clone()], &odd[range]];
            }
            let mut parts = [[_mm256_setzero_si256(); 2]; R];
            for (t, pair) in pairs.iter().enumerate() {
                for (part, weights) in pair.iter().enumerate() {
                    for r in 0..R {
                        let x = _mm256_set1_epi32(words[r][part][t]);
                        for side in 0..2 {
                            // SAFETY: the features are enabled here.
                            let sum = unsafe { P::add(parts[r][side], P::multiply(weights[side], x)) };
                            parts[r][side] = in_order(sum);
                        }
                    }
                }
            }
            for r in 0..R {
                for side in 0..2 {
                    // SAFETY: the features are enabled here.
                    let wide = unsafe { P::widen(parts[r][side]) };
                    dots[r][side] = _mm256_add_epi32(dots[r][side], wide);
                }
            }
        }
        for r in 0..R {
            let sides = sums[r].as_chunks_mut::<LANES>().0.iter_mut().zip(call.scales).zip(dots[r]);
            for ((sum, scales), dot) in sides {
                add_group(sum, dot, &scales.scales[g], &scales.biases[g], x[r].scales[g], x[r].sums[g]);
            }
        }
    }
}

/// The same. The compiler may not turn a chain of sums that goes through it into a tree, which needs more registers than there are.
#[inline]
#[target_feature(enable = "avx2")]
fn in_order(sum: __m256i) -> __m256i {
    let mut sum = sum;
    // SAFETY: there are no instructions.
    unsafe { asm!("/* {0} */", inout(ymm_reg) sum, options(pure, nomem, nostack, preserves_flags)) };
    sum
}

/// Adds a group to the results of eight columns: `dot` are its sums of products of integers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_group(
    sum: &mut [f32; LANES],
    dot: __m256i,
    scales: &[f32; LANES],
    biases: &[f32; LANES],
    x_scale: f32,
    x_sum: f32,
) {
    let bias = _mm256_mul_ps(load(biases), _mm256_set1_ps(x_sum));
    let group = _mm256_fmadd_ps(load(scales), _mm256_cvtepi32_ps(dot), bias);
    store(_mm256_fmadd_ps(group, _mm256_set1_ps(x_scale), load(sum)), sum);
}
