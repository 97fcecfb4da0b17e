//! Matrix product of rounded activations with affine weights, sixteen columns of output at a time.
//!
//! A few rows multiply weights that are turned in registers (`linear_int8_few.rs`). For more, a run of weights is unpacked into
//! a panel, whose vectors hold four (or, of 8-bit weights, two) elements of each of the columns, and multiplied with up to
//! eight rows at a time. Lines of activations and the order of sums are those of the
//! version for AVX2, which also takes most single rows.

use std::arch::x86_64::*;
use std::cell::RefCell;
use std::ops::Range;

use bytemuck::{Zeroable, cast_slice, must_cast, must_cast_ref};

use super::linear_int8_few::{self as few, FEW, FewRows};
use super::linear_int8_panel::{COLUMNS, Dot, LINES, PAIRS, Panel};
use super::linear_int8_scales::Turned;
use crate::AffineMatrix;
use crate::disjoint::Columns;
use crate::prefetch::Path;
use crate::quantised::QuantisedRows;
use crate::x86_64::avx2;
use crate::x86_64::avx2::linear_int8::{ROWS, StoredRows, rows_ahead};
use crate::x86_64::avx2::packing::{Bits4, Bits8};

/// `out[i, j]` = `x[i]` * row `columns[j]` of `w`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(crate) fn block(
    x: QuantisedRows<'_>,
    w: AffineMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    path: Path,
    out: &mut Columns<'_, f32>,
) {
    // As fast as memory without a panel.
    if x.len() == 1 && w.group >= 64 {
        return avx2::linear_int8::block(x, w, k, columns, path, out);
    }
    WORKSPACE.with_borrow_mut(|workspace| match (w.bits, w.group) {
        (4, 32) => of_form::<Bits4, 4>(x, w, k, columns, path, out, workspace),
        (4, _) => of_form::<Bits4, 8>(x, w, k, columns, path, out, workspace),
        _ => of_form::<Bits8, 8>(x, w, k, columns, path, out, workspace),
    });
}

/// What a thread works with.
struct Workspace {
    panel: Panel,
    turned: Turned,
    sums: [[f32; COLUMNS]; ROWS],
    /// See [`StoredRows::new`].
    spare: Vec<u8>,
}

thread_local! {
    /// Kept from one call to the next: to clear it would take longer than a small product.
    static WORKSPACE: RefCell<Workspace> = RefCell::new(Workspace {
        panel: Panel::zeroed(),
        turned: Turned::zeroed(),
        sums: [[0.0; COLUMNS]; ROWS],
        spare: Vec::new(),
    });
}

/// For weights of which `PARTS` low or high parts in a line belong to the same group.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn of_form<P: Dot, const PARTS: usize>(
    x: QuantisedRows<'_>,
    w: AffineMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    path: Path,
    out: &mut Columns<'_, f32>,
    workspace: &mut Workspace,
) {
    let Workspace { panel, turned, sums, spare } = workspace;
    let sums = &mut sums[..x.len()];
    let (groups, width) = (k / w.group, k * w.bits as usize / 8);
    let chunk = LINES * P::BLOCK / w.group;
    let bytes: &[u8] = cast_slice(w.packed);
    for n in columns.clone().step_by(COLUMNS) {
        let ahead = path.ahead(n, rows_ahead::<COLUMNS>(width));
        let stored = StoredRows::<COLUMNS>::new(&bytes[n * width..], width, ahead, spare);
        for first in (0..groups).step_by(chunk) {
            let some = first..groups.min(first + chunk);
            turned.fill(w, n..columns.end, groups, some.clone(), ahead);
            let blocks = stored.of_groups(&some, w.group, P::BLOCK);
            if x.len() <= FEW {
                let call = FewRows { x, groups: some, size: w.group, blocks, turned };
                few::add_groups::<P, PARTS>(&call, sums);
                continue;
            }
            panel.fill::<P>(blocks);
            let call = Groups { x, groups: some, size: w.group, panel, turned };
            add_groups::<P, PARTS>(&call, sums);
        }
        for (i, sums) in sums.iter().enumerate() {
            out.put(i, n - columns.start, sums);
        }
    }
}

/// Rows, and some of their groups.
struct Groups<'a> {
    x: QuantisedRows<'a>,
    groups: Range<usize>,
    /// Elements of a group.
    size: usize,
    /// Weights of the groups.
    panel: &'a Panel,
    /// Scales and biases of the groups.
    turned: &'a Turned,
}

/// `sums` += the products of `call`. Those of the first group are the first sums.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_groups<P: Dot, const PARTS: usize>(call: &Groups<'_>, sums: &mut [[f32; COLUMNS]]) {
    let mut at = 0;
    while at < sums.len() {
        let sums = &mut sums[at..];
        at += match sums.len() {
            1 => add_rows::<P, PARTS, 1>(call, at, sums),
            2 => add_rows::<P, PARTS, 2>(call, at, sums),
            3 => add_rows::<P, PARTS, 3>(call, at, sums),
            4 => add_rows::<P, PARTS, 4>(call, at, sums),
            5 => add_rows::<P, PARTS, 5>(call, at, sums),
            6 => add_rows::<P, PARTS, 6>(call, at, sums),
            7 => add_rows::<P, PARTS, 7>(call, at, sums),
            _ => add_rows::<P, PARTS, 8>(call, at, sums),
        };
    }
}

/// The same for `R` rows from `at` on, whose number it returns.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_rows<P: Dot, const PARTS: usize, const R: usize>(
    call: &Groups<'_>,
    at: usize,
    sums: &mut [[f32; COLUMNS]],
) -> usize {
    let mut x = [call.x.row(at); R];
    x.iter_mut().enumerate().for_each(|(r, x)| *x = call.x.row(at + r));
    // Groups of a line, or lines of a group.
    let (lines, per_line) = ((call.size / P::BLOCK).max(1), PAIRS / PARTS);
    for (group, pairs) in call.groups.clone().zip(call.panel.pairs().chunks_exact(lines * PARTS)) {
        let mut dots = [[_mm512_setzero_si512(); 2]; R];
        for (line, pairs) in (group / per_line * lines..).zip(pairs.as_chunks::<PARTS>().0) {
            let mut even: [&[i32; PARTS]; R] = [&[0; PARTS]; R];
            let mut odd = even;
            for r in 0..R {
                let words: &[[i32; PAIRS]; 2] = must_cast_ref(&x[r].lines[line]);
                even[r] = &words[0].as_chunks().0[group % per_line];
                odd[r] = &words[1].as_chunks().0[group % per_line];
            }
            for (t, [low, high]) in pairs.iter().enumerate() {
                for r in 0..R {
                    // SAFETY: the features are enabled here.
                    unsafe {
                        dots[r][0] = P::dot(dots[r][0], *low, _mm512_set1_epi32(even[r][t]));
                        dots[r][1] = P::dot(dots[r][1], *high, _mm512_set1_epi32(odd[r][t]));
                    }
                }
            }
        }
        let scales = call.turned.group(group - call.groups.start);
        for r in 0..R {
            add_group(&mut sums[r], x[r].group(group), group == 0, scales, dots[r]);
        }
    }
    R
}

/// `sum` += a group of activations with this scale and sum times weights with these scales and biases, whose products of integers
/// are summed in `dots`. The first group is the first sum.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn add_group(
    sum: &mut [f32; COLUMNS],
    (x_scale, x_sum): (f32, f32),
    is_first: bool,
    (scales, biases): (__m512, __m512),
    [even, odd]: [__m512i; 2],
) {
    let dot = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
    let bias = _mm512_mul_ps(biases, _mm512_set1_ps(x_sum));
    let product = _mm512_fmadd_ps(scales, dot, bias);
    // Without a branch, which would stand between the additions of rows.
    let before = _mm512_maskz_mov_ps(if is_first { 0 } else { !0 }, must_cast(*sum));
    *sum = must_cast(_mm512_fmadd_ps(product, _mm512_set1_ps(x_scale), before));
}
