//! A few rows of rounded activations times sixteen weight rows as they are stored: weights are turned in registers.

use std::arch::x86_64::*;
use std::ops::Range;

use bytemuck::must_cast_ref;

use super::linear_int8::add_group;
use super::linear_int8_panel::{COLUMNS, Dot, PAIRS, halves, quarter};
use super::linear_int8_scales::Turned;
use crate::quantised::QuantisedRows;
use crate::x86_64::avx2::linear_int8::Blocks;

/// Rows for which weights are turned again and again, rather than once into a panel.
pub(super) const FEW: usize = 12;

/// Rows at a time: the sums of more do not fit into the registers beside the weights.
const AT_A_TIME: usize = 8;

/// Rows of which each has a sum for even elements and one for odd ones: to wait for one sum takes longer than to add to those of
/// so few others.
const TWO_SUMS: usize = 6;

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

/// `sums` += the products of `call`. Those of the first group are the first sums.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn add_groups<P: Dot, const PARTS: usize>(call: &FewRows<'_>, sums: &mut [[f32; COLUMNS]]) {
    // Twelve rows are six and six, not eight and four.
    let rows = sums.len().div_ceil(sums.len().div_ceil(AT_A_TIME));
    for (part, sums) in sums.chunks_mut(rows).enumerate() {
        let first = part * rows;
        match sums.len() {
            1 => add_rows::<P, PARTS, 1>(call, first, sums),
            2 => add_rows::<P, PARTS, 2>(call, first, sums),
            3 => add_rows::<P, PARTS, 3>(call, first, sums),
            4 => add_rows::<P, PARTS, 4>(call, first, sums),
            5 => add_rows::<P, PARTS, 5>(call, first, sums),
            6 => add_rows::<P, PARTS, 6>(call, first, sums),
            7 => add_rows::<P, PARTS, 7>(call, first, sums),
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
    let sums: &mut [[f32; COLUMNS]; R] = sums.try_into().expect("as many sums as rows");
    let mut x = [call.x.row(row); R];
    x.iter_mut().enumerate().for_each(|(r, x)| *x = call.x.row(row + r));
    let scales = |group| call.turned.group(group - call.groups.start);
    let nothing = [[_mm512_setzero_si512(); 2]; R];
    // Groups of a line, or lines of a group.
    let (per_line, lines) = (PAIRS / PARTS, (call.size / P::BLOCK).max(1));
    let first = call.groups.start / per_line * lines;
    let last = call.blocks.count() - 1;
    let mut turned = halves(&call.blocks, 0);
    for group in call.groups.clone().step_by(per_line) {
        let mut dots = nothing;
        // Taken before the products: where a bound is checked between additions, the compiler gives each row a loop of its own.
        let mut first_half = [(0.0, 0.0); R];
        if per_line > 1 {
            for r in 0..R {
                first_half[r] = x[r].group(group);
            }
        }
        for line in group / per_line * lines..(group / per_line + 1) * lines {
            let at = line - first;
            let mut words: [&[[i32; PAIRS]; 2]; R] = [&[[0; PAIRS]; 2]; R];
            for r in 0..R {
                words[r] = must_cast_ref(&x[r].lines[line]);
            }
            let block = TurnedBlock::<R, PARTS> { halves: turned, words };
            dots = block.add_half::<P, 0>(dots);
            if per_line > 1 {
                for r in 0..R {
                    add_group(&mut sums[r], first_half[r], group == 0, scales(group), dots[r]);
                }
                dots = nothing;
            }
            // The next block is turned while products of this one are still to be added: neither waits for the other.
            call.blocks.prefetch(at);
            turned = halves(&call.blocks, last.min(at + 1));
            // The last line may be half a line.
            if per_line > 1 && group + 1 == call.groups.end {
                return;
            }
            dots = block.add_half::<P, 1>(dots);
        }
        let group = group + per_line - 1;
        for r in 0..R {
            add_group(&mut sums[r], x[r].group(group), group == 0, scales(group), dots[r]);
        }
    }
}

/// A block of sixteen columns, and the lines of activations that it is multiplied with.
///
/// The number of parts is only there so that each [`add_rows`] has halves of its own, which become part of it: as calls they would
/// get their vectors by way of memory.
struct TurnedBlock<'a, const R: usize, const PARTS: usize> {
    halves: ([__m512i; 4], [__m512i; 4]),
    words: [&'a [[i32; PAIRS]; 2]; R],
}

impl<const R: usize, const PARTS: usize> TurnedBlock<'_, R, PARTS> {
    /// `dots` and the products of half a block.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    fn add_half<P: Dot, const HALF: usize>(&self, dots: [[__m512i; 2]; R]) -> [[__m512i; 2]; R] {
        let mut dots = dots;
        for t in 0..PAIRS / 2 {
            let packed = quarter(self.halves.0[t], self.halves.1[t], HALF);
            let word = HALF * PAIRS / 2 + t;
            // SAFETY: the features are enabled here.
            let parts = unsafe { [P::even(packed), P::odd(packed)] };
            for (part, weights) in parts.into_iter().enumerate() {
                let sum = if R > TWO_SUMS { 0 } else { part };
                for (dots, words) in dots.iter_mut().zip(&self.words) {
                    let x = _mm512_set1_epi32(words[part][word]);
                    // SAFETY: the features are enabled here.
                    dots[sum] = unsafe { P::dot(dots[sum], weights, x) };
                }
            }
        }
        dots
    }
}
