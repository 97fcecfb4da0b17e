//! Matrix product of rounded activations with affine weights, sixteen columns of output at a time.
//!
//! Lines of activations and the order of sums are those of the version for AVX2, which also takes single rows.

use std::arch::x86_64::*;
use std::ops::Range;

use bytemuck::{cast_slice, must_cast_ref};

use crate::AffineMatrix;
use crate::disjoint::Columns;
use crate::quantised::{QuantisedRow, QuantisedRows};
use crate::rows::LANES;
use crate::x86_64::avx2;
use crate::x86_64::avx2::linear_int8::{EightRows, ROWS};
use crate::x86_64::avx2::linear_int8_panel::{PANEL, Panel};
use crate::x86_64::avx2::linear_int8_scales::{GROUPS, turn};
use crate::x86_64::avx2::packing::{Bits4, Bits8, Packing};

/// Columns of a tile.
const COLUMNS: usize = 2 * LANES;

/// Panel vectors of a block.
const VECTORS: usize = 16;

/// Weights of one width.
trait Dot: Packing {
    /// `sum` and the products of neighbours.
    ///
    /// # Safety
    /// The machine has AVX-512 with VNNI.
    unsafe fn dot(sum: __m512i, weights: __m512i, x: __m512i) -> __m512i;
}

impl Dot for Bits4 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn dot(sum: __m512i, weights: __m512i, x: __m512i) -> __m512i {
        _mm512_dpbusd_epi32(sum, weights, x)
    }
}

impl Dot for Bits8 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn dot(sum: __m512i, weights: __m512i, x: __m512i) -> __m512i {
        _mm512_dpwssd_epi32(sum, weights, x)
    }
}

/// `out[i, j]` = `x[i]` * row `columns[j]` of `w`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512vnni")]
pub(crate) fn block(
    x: QuantisedRows<'_>,
    w: AffineMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    out: &mut Columns<'_, f32>,
) {
    match (x.len(), w.bits) {
        (1, _) => avx2::linear_int8::block(x, w, k, columns, out),
        (_, 4) => of_width::<Bits4>(x, w, k, columns, out),
        _ => of_width::<Bits8>(x, w, k, columns, out),
    }
}

/// Unpacked weights of sixteen columns, with their scales and biases.
struct Tile {
    weights: [Panel; 2],
    scales: [[[f32; LANES]; GROUPS]; 2],
    biases: [[[f32; LANES]; GROUPS]; 2],
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512vnni")]
fn of_width<P: Dot>(
    x: QuantisedRows<'_>,
    w: AffineMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    out: &mut Columns<'_, f32>,
) {
    let (groups, width) = (k / w.group, k * w.bits as usize / 8);
    let chunk = PANEL * P::BLOCK / w.group;
    let bytes: &[u8] = cast_slice(w.packed);
    let empty = [[[0.0; LANES]; GROUPS]; 2];
    let mut tile = Tile { weights: [Panel::new(), Panel::new()], scales: empty, biases: empty };
    let mut spare = [Vec::new(), Vec::new()];
    let mut sums = [[0.0; COLUMNS]; ROWS];
    for n in columns.clone().step_by(COLUMNS) {
        sums[..x.len()].fill([0.0; COLUMNS]);
        let [low, high] = &mut spare;
        let second = columns.end.min(n + LANES);
        let eights = [
            EightRows::new(&bytes[n * width..], width, low),
            EightRows::new(&bytes[second * width..], width, high),
        ];
        for first in (0..groups).step_by(chunk) {
            let some = first..groups.min(first + chunk);
            let start = first * w.group / P::BLOCK;
            let count = (some.end * w.group).div_ceil(P::BLOCK) - start;
            for (i, eight) in eights.into_iter().enumerate() {
                let row = |c: usize| (columns.end - 1).min(n + i * LANES + c);
                let rows = [row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)];
                turn(w.scales, &rows, groups, first, &mut tile.scales[i][..some.len()]);
                turn(w.biases, &rows, groups, first, &mut tile.biases[i][..some.len()]);
                tile.weights[i].fill::<P>(eight.blocks(start, count));
            }
            match w.group {
                32 => add_groups::<P, 1>(x, &tile, some, &mut sums[..x.len()]),
                64 => add_groups::<P, 2>(x, &tile, some, &mut sums[..x.len()]),
                _ => add_groups::<P, 4>(x, &tile, some, &mut sums[..x.len()]),
            }
        }
        let at = n - columns.start;
        let count = COLUMNS.min(columns.end - n);
        for (i, sums) in sums[..x.len()].iter().enumerate() {
            out.row(i)[at..at + count].copy_from_slice(&sums[..count]);
        }
    }
}

/// `sums` += rows of `x` times the tile, which holds the groups `groups` of `RUNS` times 32 elements.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512vnni")]
fn add_groups<P: Dot, const RUNS: usize>(
    x: QuantisedRows<'_>,
    tile: &Tile,
    groups: Range<usize>,
    sums: &mut [[f32; COLUMNS]],
) {
    let row = |i: usize| x.row(i).part(groups.clone(), RUNS * 32, P::BLOCK);
    let mut at = 0;
    let (eights, rest) = sums.as_chunks_mut::<8>();
    for sums in eights {
        let mut rows = [row(at); 8];
        for (r, to) in rows.iter_mut().enumerate() {
            *to = row(at + r);
        }
        add_rows::<P, RUNS, 8>(rows, tile, sums);
        at += 8;
    }
    let (fours, rest) = rest.as_chunks_mut::<4>();
    for sums in fours {
        add_rows::<P, RUNS, 4>([row(at), row(at + 1), row(at + 2), row(at + 3)], tile, sums);
        at += 4;
    }
    for sums in rest.as_chunks_mut::<1>().0 {
        add_rows::<P, RUNS, 1>([row(at)], tile, sums);
        at += 1;
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512vnni")]
fn add_rows<P: Dot, const RUNS: usize, const R: usize>(
    x: [QuantisedRow<'_>; R],
    tile: &Tile,
    sums: &mut [[f32; COLUMNS]; R],
) {
    let steps = RUNS * P::STEPS;
    let panels =
        tile.weights[0].vectors().chunks_exact(steps).zip(tile.weights[1].vectors().chunks_exact(steps));
    let mut words: [&[i32]; R] = [cast_slice(x[0].lines); R];
    for r in 0..R {
        words[r] = cast_slice(x[r].lines);
    }
    for (g, (low, high)) in panels.take(x[0].scales.len()).enumerate() {
        let mut dot = [_mm512_setzero_si512(); R];
        for s in 0..steps {
            let weights = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low[s]), high[s]);
            // Step by step the word of a low part and that of a high one, half a line behind.
            let step = g * steps + s;
            let word = step / VECTORS * VECTORS + step % 2 * 8 + step % VECTORS / 2;
            for r in 0..R {
                // SAFETY: the features are enabled here.
                dot[r] = unsafe { P::dot(dot[r], weights, _mm512_set1_epi32(words[r][word])) };
            }
        }
        let scales = load(&[tile.scales[0][g], tile.scales[1][g]]);
        let biases = load(&[tile.biases[0][g], tile.biases[1][g]]);
        for r in 0..R {
            let bias = _mm512_mul_ps(biases, _mm512_set1_ps(x[r].sums[g]));
            let group = _mm512_fmadd_ps(scales, _mm512_cvtepi32_ps(dot[r]), bias);
            let acc = _mm512_fmadd_ps(group, _mm512_set1_ps(x[r].scales[g]), load(must_cast_ref(&sums[r])));
            // SAFETY: the vector is as long as the sums.
            unsafe { _mm512_storeu_ps(sums[r].as_mut_ptr(), acc) };
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(x: &[[f32; LANES]; 2]) -> __m512 {
    // SAFETY: the vector is as long as the two arrays.
    unsafe { _mm512_loadu_ps(x.as_ptr().cast()) }
}
