//! Two to four rows of rounded activations times eight weight rows as they are stored.
//!
//! Rows go in pairs: half a line of one lies beside the same half of the other. Half a block of weights, in both halves of a
//! vector, is unpacked once for all pairs and never turned, and what is summed across lanes are four columns of two rows at
//! once.

use std::arch::x86_64::*;
use std::cell::RefCell;
use std::ops::Range;

use bytemuck::{must_cast, must_cast_ref};

use super::lanes::{LANES, load};
use super::linear_int8::Blocks;
use super::linear_int8_panel::in_order;
use super::linear_int8_scales::{GROUPS, ScalePanel};
use super::packing::Packing;
use crate::quantised::{Line, QuantisedRows};

/// Rows at most: the sums of more do not fit into the registers beside the weights.
pub(super) const FEW: usize = 4;

/// Elements of a group at least: of smaller ones a panel adds more before it sums across lanes.
pub(super) const SMALLEST_GROUP: usize = 64;

/// Columns at a time.
const FOUR: usize = LANES / 2;

/// Results of a row: of the lower four columns, and of the upper.
pub(super) type RowSums = [[f32; FOUR]; 2];

/// Rows side by side. A last row without a partner stands in both places.
#[derive(Default)]
pub(super) struct Pairs {
    /// [pairs, halves of a line]: even elements of both rows, then odd ones.
    halves: Vec<Line>,
    /// [pairs, groups].
    groups: Vec<PairGroup>,
    /// Halves of a pair's lines.
    halves_each: usize,
    /// Groups of a pair.
    groups_each: usize,
}

/// The scales and sums of a group, for four columns of one row and of the other.
#[derive(Clone, Copy, Default)]
struct PairGroup {
    scales: [f32; LANES],
    sums: [f32; LANES],
}

thread_local! {
    /// What the last call on this thread used, for the next to use again.
    static PAIRS: RefCell<Pairs> = RefCell::default();
}

impl Pairs {
    /// Calls `work` with `x` in this thread's memory.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn with(x: QuantisedRows<'_>, work: impl FnOnce(&Self)) {
        let mut pairs = PAIRS.take();
        pairs.fill(x);
        work(&pairs);
        PAIRS.replace(pairs);
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    fn fill(&mut self, x: QuantisedRows<'_>) {
        let pairs = x.len().div_ceil(2);
        (self.halves_each, self.groups_each) = (2 * x.row(0).lines.len(), x.row(0).scales.len());
        self.halves.resize(pairs * self.halves_each, Line([0; 64]));
        self.groups.resize(pairs * self.groups_each, PairGroup::default());
        let halves = self.halves.chunks_exact_mut(self.halves_each);
        let groups = self.groups.chunks_exact_mut(self.groups_each);
        for (pair, (halves, groups)) in halves.zip(groups).enumerate() {
            let (a, b) = (x.row(2 * pair), x.row((2 * pair + 1).min(x.len() - 1)));
            let lines = a.lines.iter().zip(b.lines);
            for ((a, b), [low, high]) in lines.zip(halves.as_chunks_mut().0) {
                let (a, b): (&[__m256i; 2], &[__m256i; 2]) = (must_cast_ref(a), must_cast_ref(b));
                let (mut lower, mut upper) = (*a, *b);
                for part in 0..2 {
                    lower[part] = _mm256_permute2x128_si256::<0x20>(a[part], b[part]);
                    upper[part] = _mm256_permute2x128_si256::<0x31>(a[part], b[part]);
                }
                (*low, *high) = (must_cast(lower), must_cast(upper));
            }
            for (g, group) in groups.iter_mut().enumerate() {
                let ((a_scale, a_sum), (b_scale, b_sum)) = (a.group(g), b.group(g));
                group.scales = must_cast([[a_scale; FOUR], [b_scale; FOUR]]);
                group.sums = must_cast([[a_sum; FOUR], [b_sum; FOUR]]);
            }
        }
    }

    /// The groups `groups` of pair `pair`, of `HALVES` halves of lines each.
    fn part<const HALVES: usize>(
        &self,
        pair: usize,
        groups: &Range<usize>,
    ) -> (&[[Line; HALVES]], &[PairGroup]) {
        let lines = self.halves[pair * self.halves_each..].as_chunks().0;
        let of_groups = &self.groups[pair * self.groups_each..];
        (&lines[groups.clone()], &of_groups[groups.clone()])
    }
}

/// Pairs, and some of their groups.
pub(super) struct FewRows<'a> {
    pub(super) x: &'a Pairs,
    pub(super) groups: Range<usize>,
    /// Elements of a group.
    pub(super) size: usize,
    /// Weights of the groups.
    pub(super) blocks: Blocks<'a, LANES>,
    /// Scales and biases of the groups.
    pub(super) scales: &'a ScalePanel,
}

/// `sums` += the products of `call`, for both rows of each pair.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn add_groups<P: Packing>(call: &FewRows<'_>, sums: &mut [[RowSums; 2]]) {
    match 2 * call.size / P::BLOCK {
        2 => of_pairs::<P, 2>(call, sums),
        4 => of_pairs::<P, 4>(call, sums),
        _ => of_pairs::<P, 8>(call, sums),
    }
}

/// The same for groups of `HALVES` halves of blocks.
#[target_feature(enable = "avx2,fma,f16c")]
fn of_pairs<P: Packing, const HALVES: usize>(call: &FewRows<'_>, sums: &mut [[RowSums; 2]]) {
    for four in 0..2 {
        match sums {
            [one] => add_pairs::<P, HALVES, 1>(call, four, std::array::from_mut(one)),
            _ => add_pairs::<P, HALVES, 2>(call, four, sums.try_into().expect("two pairs")),
        }
    }
}

/// The same for the lower or the upper four columns.
#[target_feature(enable = "avx2,fma,f16c")]
#[expect(
    clippy::needless_range_loop,
    reason = "four rows take 1.2 times as long with loops that the lint accepts"
)]
fn add_pairs<P: Packing, const HALVES: usize, const N: usize>(
    call: &FewRows<'_>,
    four: usize,
    results: &mut [[RowSums; 2]; N],
) {
    let mut x: [(&[[Line; HALVES]], &[PairGroup]); N] = [(&[], &[]); N];
    let mut sums = [_mm256_setzero_ps(); N];
    for p in 0..N {
        x[p] = call.x.part(p, &call.groups);
        sums[p] = must_cast(results[p].map(|row| row[four]));
    }
    let [scales, biases]: &[[[[f32; FOUR]; 2]; GROUPS]; 2] = must_cast_ref(call.scales);
    // Of products with nibbles, so many fit into 16 bits.
    let joined = if P::STEPS == 8 { 2 } else { HALVES };
    for g in 0..call.groups.len() {
        let mut lines: [&[Line; HALVES]; N] = [&x[0].0[g]; N];
        for p in 1..N {
            lines[p] = &x[p].0[g];
        }
        let mut dots = [_mm256_setzero_si256(); N];
        for from in (0..HALVES).step_by(joined) {
            let mut columns = [[_mm256_setzero_si256(); FOUR]; N];
            for half in from..from + joined {
                let (block, part) = ((g * HALVES + half) / 2, half % 2);
                call.blocks.prefetch_quarter(block, 2 * part + four);
                for c in 0..FOUR {
                    // SAFETY: the column is below 8, the groups have so many blocks, and the features are enabled here.
                    let (low, high) = unsafe {
                        let weights = call.blocks.half_twice(FOUR * four + c, block, part);
                        (P::low(weights), P::high(weights))
                    };
                    for p in 0..N {
                        let [even, odd]: &[__m256i; 2] = must_cast_ref(&lines[p][half]);
                        // SAFETY: the features are enabled here.
                        let products = unsafe { P::add(P::multiply(low, *even), P::multiply(high, *odd)) };
                        let sum = if half == from {
                            products
                        } else {
                            // SAFETY: as above.
                            unsafe { P::add(columns[p][c], products) }
                        };
                        columns[p][c] = in_order(sum);
                    }
                }
            }
            for p in 0..N {
                dots[p] = _mm256_add_epi32(dots[p], across::<P>(columns[p]));
            }
        }
        let (scale, bias): (__m256, __m256) =
            (must_cast([scales[g][four]; 2]), must_cast([biases[g][four]; 2]));
        for p in 0..N {
            let PairGroup { scales, sums: x_sums } = &x[p].1[g];
            let bias = _mm256_mul_ps(bias, load(x_sums));
            let group = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dots[p]), bias);
            sums[p] = _mm256_fmadd_ps(group, load(scales), sums[p]);
        }
    }
    for p in 0..N {
        let rows: [[f32; FOUR]; 2] = must_cast(sums[p]);
        for (result, sum) in results[p].iter_mut().zip(rows) {
            result[four] = sum;
        }
    }
}

/// In each half, the sums of the lanes of four columns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn across<P: Packing>([a, b, c, d]: [__m256i; FOUR]) -> __m256i {
    // SAFETY: the features are enabled here.
    let (ab, cd) = unsafe {
        (
            P::widen(P::add(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b))),
            P::widen(P::add(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d))),
        )
    };
    _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd))
}
