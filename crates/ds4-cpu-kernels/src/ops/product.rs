//! What `linear` and `grouped_linear` share: rows of activations in the form that the weights and the precision ask for.

use std::ops::Range;

use super::quantise::quantise;
use crate::disjoint::Columns;
use crate::quantised::{Quantised, QuantisedRows};
use crate::rows::{Rows, padded, padded_width};
use crate::{Activations, AffineMatrix, Cpu, Matrix};

/// Rows of activations that share one decoding of the weights. More would push the partial sums out of the L2 cache.
pub(crate) const ROW_BLOCK: usize = 128;

/// Columns of output a task takes are a multiple of this, so that only the last task has an incomplete register tile.
pub(crate) const COLUMN_STEP: usize = 48;

/// Integer multiply-adds that take about as long as one of floats.
const INTEGER_SPEED: usize = 3;

/// A matrix product ready to be computed block by block.
#[derive(Clone, Copy)]
pub(crate) enum Product<'a> {
    Float(Rows<'a>, Matrix<'a>),
    Int8(QuantisedRows<'a>, AffineMatrix<'a>),
}

impl Product<'_> {
    /// Calls `work` with the product of rows of `x` ([rows, k], not empty) and `w`: of all of them in order, or of those
    /// that `index` names.
    pub(crate) fn with(
        cpu: &Cpu,
        x: &[f32],
        w: Matrix<'_>,
        index: Option<&[u32]>,
        k: usize,
        work: impl FnOnce(Product<'_>),
    ) {
        match (cpu.activations(), w) {
            (Activations::Int8, Matrix::Affine(w)) => Quantised::with_scratch(|scratch| {
                quantise(cpu, x, w, k, scratch);
                let rows = scratch.rows(x.len() / k);
                work(Product::Int8(index.map_or(rows, |index| rows.indexed(index)), w));
            }),
            _ => {
                let (x, width) = (padded(x, k), padded_width(k));
                let rows = index.map_or(Rows::all(&x, width), |index| Rows::indexed(&x, width, index));
                work(Product::Float(rows, w));
            }
        }
    }

    /// Multiply-adds in the unit of task costs.
    pub(crate) fn cost(&self, multiply_adds: usize) -> usize {
        match self {
            Self::Float(..) => multiply_adds,
            Self::Int8(..) => multiply_adds / INTEGER_SPEED,
        }
    }

    /// `out[i, j]` = row `rows[i]` of the activations times row `columns[j]` of the weights.
    pub(crate) fn block(
        self,
        cpu: &Cpu,
        rows: Range<usize>,
        columns: Range<usize>,
        k: usize,
        out: &mut Columns<'_, f32>,
    ) {
        match self {
            Self::Float(x, w) => dispatch!(cpu, linear::block(x.range(rows), w, k, columns, out)),
            Self::Int8(x, w) => dispatch!(cpu, linear_int8::block(x.range(rows), w, k, columns, out)),
        }
    }
}
