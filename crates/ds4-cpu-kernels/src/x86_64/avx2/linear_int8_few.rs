//! One to four rows of rounded activations times weight rows as they are stored.
//!
//! Weight rows are read one after the other, from end to end, which is how memory is fastest, and their scales and biases as they are
//! stored, too (`linear_int8_groups.rs`).

use std::arch::x86_64::*;
use std::array;
use std::ops::Range;

use bytemuck::must_cast;

use super::lanes::LANES;
use super::linear_int8_groups::Groups;
use super::linear_int8_stored::{Shape, Spare, Stored, VECTORS};
use super::packing::Packing;
use super::quantise;
use crate::AffineMatrix;
use crate::disjoint::Columns;
use crate::prefetch::Path;
use crate::quantised::{QuantisedRow, QuantisedRows};

/// Rows at most: more gain from weights that are unpacked once for all of them.
pub(super) const FEW: usize = 4;

/// Elements of a group at least where there are several rows: of smaller ones a panel adds more before it sums across lanes.
pub(super) const SMALLEST_GROUP: usize = 64;

/// `out[i, j]` = `x[i]` * row `columns[j]` of `w`, for at most four `x`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn block<P: Packing>(
    x: QuantisedRows<'_>,
    w: AffineMatrix<'_>,
    k: usize,
    columns: Range<usize>,
    path: Path,
    out: &mut Columns<'_, f32>,
) {
    let call = Call { w, k, columns, path };
    match x.len() {
        1 => call.of_rows::<P, 1>(x, out),
        2 => call.of_rows::<P, 2>(x, out),
        3 => call.of_rows::<P, 3>(x, out),
        _ => call.of_rows::<P, FEW>(x, out),
    }
}

/// A product without its activations.
struct Call<'a> {
    w: AffineMatrix<'a>,
    k: usize,
    columns: Range<usize>,
    path: Path,
}

impl Call<'_> {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn of_rows<P: Packing, const ROWS: usize>(&self, x: QuantisedRows<'_>, out: &mut Columns<'_, f32>) {
        let x = array::from_fn(|i| x.row(i));
        match self.w.group / P::BLOCK {
            0 => self.of_groups::<P, ROWS, 0>(&x, out),
            1 => self.of_groups::<P, ROWS, 1>(&x, out),
            2 => self.of_groups::<P, ROWS, 2>(&x, out),
            _ => self.of_groups::<P, ROWS, 4>(&x, out),
        }
    }

    /// For groups of `N` blocks, of half a block if that is 0.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn of_groups<P: Packing, const ROWS: usize, const N: usize>(
        &self,
        x: &[QuantisedRow<'_>; ROWS],
        out: &mut Columns<'_, f32>,
    ) {
        let Self { w, k, columns, path } = self;
        let groups = k / w.group;
        let vectors = groups.div_ceil(LANES).min(VECTORS);
        let blocks = quantise::lines(*k, w.group, w.bits);
        assert!(x.iter().all(|x| x.lines.len() == blocks), "activations that are not padded");
        let shape = Shape::new(*w, *k, blocks);
        let mut results = [[[[0.0; LANES]; ROWS]; LANES]; VECTORS];
        Spare::with(|spare| {
            let mut rows = columns.start..columns.start;
            while rows.end < columns.end {
                rows = shape.next(*w, rows.end..columns.end, VECTORS / vectors);
                let stored = Stored::new(*w, &shape, rows.clone(), *path, spare);
                let mut sums = [[_mm256_setzero_ps(); ROWS]; VECTORS];
                for first in (0..groups).step_by(VECTORS * LANES) {
                    let x = Groups::<ROWS, N>::new(x, first..groups.min(first + VECTORS * LANES));
                    // SAFETY: the rows have as many groups, and are read in as many blocks. The features are enabled here.
                    unsafe { x.times::<P>(&stored, &mut results) };
                    for (results, sums) in results.chunks_exact(vectors).zip(&mut sums).take(stored.eights())
                    {
                        x.add(results, sums);
                    }
                }
                for (n, sums) in rows.clone().step_by(LANES).zip(sums) {
                    for (i, sum) in sums.into_iter().enumerate() {
                        out.put::<LANES>(i, n - columns.start, &must_cast(sum));
                    }
                }
            }
        });
    }
}
