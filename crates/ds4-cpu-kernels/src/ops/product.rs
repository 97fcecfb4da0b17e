//! What `linear` and `grouped_linear` share: rows of activations in the form that the weights and the precision ask for.

use std::ops::Range;

use super::quantise::Rounding;
use crate::disjoint::Columns;
use crate::prefetch::Path;
use crate::quantised::{CallId, Quantised, QuantisedRows};
use crate::rows::{Rows, padded, padded_width};
use crate::{Activations, AffineMatrix, Cpu, Matrix};

/// Rows of activations that share one decoding of the weights. More would push the partial sums out of the L2 cache.
pub(crate) const ROW_BLOCK: usize = 128;

/// Elements that threads round in all if each rounds them for itself: to wait for another, and to bring what it has just
/// written, takes longer.
const FEW: usize = 64 * 1024;

/// Integer multiply-adds that take about as long as one of floats.
const INTEGER_SPEED: usize = 3;

/// What rows of activations have to be for a weight and a precision.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Float,
    Int8(Rounding),
}

impl Form {
    /// What `cpu` multiplies `w` with.
    pub(crate) fn of(cpu: &Cpu, w: Matrix<'_>) -> Self {
        match (cpu.activations(), w) {
            (Activations::Int8, Matrix::Affine(AffineMatrix { group, bits, .. })) => {
                Self::Int8(Rounding { group, bits })
            }
            _ => Self::Float,
        }
    }

    /// `multiply_adds` in the unit of task costs.
    pub(crate) fn cost(self, multiply_adds: usize) -> usize {
        match self {
            Self::Float => multiply_adds,
            Self::Int8(_) => multiply_adds / INTEGER_SPEED,
        }
    }

    /// Columns of output that a task takes of `n`, each of `multiply_adds`: whole register tiles, and rather less than more, so
    /// that threads get the same.
    pub(crate) fn columns_per_task(self, cpu: &Cpu, n: usize, multiply_adds: usize) -> usize {
        let tile = match self {
            Self::Float => 48,
            Self::Int8(_) => 16,
        };
        (cpu.units_per_task(n, self.cost(multiply_adds)) / tile).max(1) * tile
    }

    /// Calls `work` with rows of `x` ([rows, k], not empty) in this form: with all of them in order, or with those that `index`
    /// names.
    pub(crate) fn with(
        self,
        cpu: &Cpu,
        x: &[f32],
        index: Option<&[u32]>,
        k: usize,
        work: impl FnOnce(Operand<'_>),
    ) {
        match self {
            Self::Int8(rounding) if x.len() * cpu.threads() <= FEW => {
                work(Operand::Own(OwnRows { x, rounding, k, index, id: CallId::new() }));
            }
            Self::Int8(rounding) => Quantised::with_scratch(|scratch| {
                rounding.apply(cpu, x, k, scratch);
                let rows = scratch.rows(x.len() / k);
                work(Operand::Int8(index.map_or(rows, |index| rows.indexed(index))));
            }),
            Self::Float => {
                let (x, width) = (padded(x, k), padded_width(k));
                work(Operand::Float(
                    index.map_or(Rows::all(&x, width), |index| Rows::indexed(&x, width, index)),
                ));
            }
        }
    }
}

/// Rows of activations, ready to be multiplied with weights of a form.
#[derive(Clone, Copy)]
pub(crate) enum Operand<'a> {
    Float(Rows<'a>),
    Int8(QuantisedRows<'a>),
    /// To be rounded by each thread for itself.
    Own(OwnRows<'a>),
}

/// Few rows of activations and how to round them.
#[derive(Clone, Copy)]
pub(crate) struct OwnRows<'a> {
    x: &'a [f32],
    rounding: Rounding,
    k: usize,
    index: Option<&'a [u32]>,
    id: CallId,
}

impl OwnRows<'_> {
    /// Calls `work` with `rows` of the rounded rows: only these are rounded if there is no index.
    fn with(self, cpu: &Cpu, rows: Range<usize>, work: impl FnOnce(QuantisedRows<'_>)) {
        let Self { x, rounding, k, index, id } = self;
        let wanted = if index.is_some() { 0..x.len() / k } else { rows.clone() };
        let x = &x[wanted.start * k..wanted.end * k];
        Quantised::with_own(
            (id, wanted.start),
            |own| rounding.apply_here(cpu, x, k, own),
            |own| {
                let all = own.rows(wanted.len());
                work(index.map_or(all, |index| all.indexed(index).range(rows)));
            },
        );
    }
}

impl Operand<'_> {
    /// `out[i, j]` = row `rows[i]` of the activations times row `columns[j]` of `w`, which must be of the operand's form. `path` says
    /// where this thread is likely to go on.
    pub(crate) fn times(
        self,
        cpu: &Cpu,
        w: Matrix<'_>,
        rows: Range<usize>,
        columns: Range<usize>,
        path: Path,
        k: usize,
        out: &mut Columns<'_, f32>,
    ) {
        match (self, w) {
            (Self::Float(x), _) => dispatch!(cpu, linear::block(x.range(rows), w, k, columns, out)),
            (Self::Int8(x), Matrix::Affine(w)) => {
                dispatch!(cpu, linear_int8::block(x.range(rows), w, k, columns, path, out));
            }
            (Self::Own(x), Matrix::Affine(w)) => x.with(cpu, rows, |x| {
                dispatch!(cpu, linear_int8::block(x, w, k, columns, path, out));
            }),
            (Self::Int8(_) | Self::Own(_), _) => {
                unreachable!("only affine weights have the form of rounded activations")
            }
        }
    }
}
