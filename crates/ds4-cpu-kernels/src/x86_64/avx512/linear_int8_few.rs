//! A few rows of rounded activations times sixteen weight rows as they are stored: weights are turned in registers.

use std::arch::x86_64::*;
use std::ops::Range;

use bytemuck::{must_cast, must_cast_ref};

use super::linear_int8::add_group;
use super::linear_int8_panel::{COLUMNS, Dot, PAIRS, halves, quarter};
use super::linear_int8_scales::Turned;
use crate::quantised::{QuantisedRow, QuantisedRows};
use crate::x86_64::avx2::linear_int8::Blocks;

/// Rows for which weights are turned again and again, rather than once into a panel.
pub(super) const FEW: usize = 12;

/// Rows at a time: the sums of more do not fit into the registers beside the weights.
const AT_A_TIME: usize = 6;

/// Rows, and some of their groups.
pub(super) struct FewRows<'a> {
    pub(super) x: QuantisedRows<'a>,
    pub(super) groups: Range<usize>,
    /// Elements of a group.
    pub(super) size: usize,
    /// Weights of the groups.
    pub(super) blocks: Blocks<'a, COLUMNS>,
    /// Scales and biases of the groups.
    pub(super) turned: &'a Turned,
}

/// `sums` += the products of `call`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn add_groups<P: Dot, const PARTS: usize>(call: &FewRows<'_>, sums: &mut [[f32; COLUMNS]]) {
    // Eight rows are four and four, not six and two.
    let rows = sums.len().div_ceil(sums.len().div_ceil(AT_A_TIME));
    for (part, sums) in sums.chunks_mut(rows).enumerate() {
        let first = part * rows;
        match sums.len() {
            1 => add_rows::<P, PARTS, 1>(call, first, sums),
            2 => add_rows::<P, PARTS, 2>(call, first, sums),
            3 => add_rows::<P, PARTS, 3>(call, first, sums),
            4 => add_rows::<P, PARTS, 4>(call, first, sums),
            5 => add_rows::<P, PARTS, 5>(call, first, sums),
            _ => add_rows::<P, PARTS, AT_A_TIME>(call, first, sums),
        }
    }
}

/// The same for `R` rows from `row` on.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_rows<P: Dot, const PARTS: usize, const R: usize>(
    call: &FewRows<'_>,
    row: usize,
    sums: &mut [[f32; COLUMNS]],
) {
    let mut x = [call.x.row(row); R];
    let mut acc = [_mm512_setzero_ps(); R];
    for r in 0..R {
        x[r] = call.x.row(row + r);
        acc[r] = must_cast(sums[r]);
    }
    let scales = |group| call.turned.group(group - call.groups.start);
    if PARTS < PAIRS {
        // A line has two groups. The last group may have half a line.
        let first = call.groups.start / 2;
        for at in 0..call.blocks.count() {
            let block = TurnedBlock::<R>::new(&call.blocks, at, first + at, &x);
            let group = 2 * (first + at);
            let dots = block.add_half::<P, 0>([[_mm512_setzero_si512(); 2]; R]);
            add_group(&x, group, scales(group), dots, &mut acc);
            if group + 1 < call.groups.end {
                let dots = block.add_half::<P, 1>([[_mm512_setzero_si512(); 2]; R]);
                add_group(&x, group + 1, scales(group + 1), dots, &mut acc);
            }
        }
    } else {
        let lines = call.size / P::BLOCK;
        for group in call.groups.clone() {
            let mut dots = [[_mm512_setzero_si512(); 2]; R];
            for at in group * lines..(group + 1) * lines {
                let block = TurnedBlock::<R>::new(&call.blocks, at - call.groups.start * lines, at, &x);
                dots = block.add_half::<P, 0>(dots);
                dots = block.add_half::<P, 1>(dots);
            }
            add_group(&x, group, scales(group), dots, &mut acc);
        }
    }
    for r in 0..R {
        sums[r] = must_cast(acc[r]);
    }
}

/// A block of sixteen columns, and the lines of activations that it is multiplied with.
struct TurnedBlock<'a, const R: usize> {
    low: [__m512i; 4],
    high: [__m512i; 4],
    words: [&'a [[i32; PAIRS]; 2]; R],
}

impl<'a, const R: usize> TurnedBlock<'a, R> {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    fn new(blocks: &Blocks<'_, COLUMNS>, at: usize, line: usize, x: &[QuantisedRow<'a>; R]) -> Self {
        blocks.prefetch(at);
        let (low, high) = halves(blocks, at);
        let mut words: [&[[i32; PAIRS]; 2]; R] = [&[[0; PAIRS]; 2]; R];
        for r in 0..R {
            words[r] = must_cast_ref(&x[r].lines[line]);
        }
        Self { low, high, words }
    }

    /// `dots` and the products of half a block.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    fn add_half<P: Dot, const HALF: usize>(&self, dots: [[__m512i; 2]; R]) -> [[__m512i; 2]; R] {
        let mut dots = dots;
        #[allow(clippy::needless_range_loop)] // `r` counts in the activations as well
        for t in 0..PAIRS / 2 {
            let packed = quarter(self.low[t], self.high[t], HALF);
            // SAFETY: the features are enabled here.
            let (even, odd) = unsafe { (P::even(packed), P::odd(packed)) };
            let word = HALF * PAIRS / 2 + t;
            for r in 0..R {
                // SAFETY: the features are enabled here.
                unsafe {
                    dots[r][0] = P::dot(dots[r][0], even, _mm512_set1_epi32(self.words[r][0][word]));
                    dots[r][1] = P::dot(dots[r][1], odd, _mm512_set1_epi32(self.words[r][1][word]));
                }
            }
        }
        dots
    }
}
