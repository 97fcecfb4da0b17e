//! Matrix products and row lookup.

use ds4_cpu_kernels::{self as kernels, AffineMatrix, BlockMatrix, BlockScales, Matrix};
use ds4_dtype::DType;

use smallvec::SmallVec;

use crate::data::{Data, Storage};
use crate::memory::Buffer;
use crate::primitive::WeightFormat;
use crate::{ArrayError, Shape};

use super::Outputs;
use super::call::{Call, Dense};

/// The inputs that make up a weight, from `first` on.
pub(super) struct WeightParts<'a> {
    dense: [Option<Dense<'a>>; 3],
    first: usize,
    format: WeightFormat,
}

impl<'a> WeightParts<'a> {
    pub(super) fn new(call: &'a Call<'_>, first: usize, format: WeightFormat) -> Result<Self, ArrayError> {
        let mut dense = [const { None }; 3];
        for (part, slot) in dense.iter_mut().enumerate().take(format.parts()) {
            *slot = Some(call.dense(first + part)?);
        }
        Ok(Self { dense, first, format })
    }

    pub(super) fn matrix<'d>(&'d self, call: &Call<'_>) -> Result<Matrix<'d>, ArrayError> {
        let part = |index: usize| self.dense[index].as_ref().ok_or(ArrayError::NotComputed);
        match self.format {
            WeightFormat::Dense => Ok(Matrix::Dense(call.floats(self.first, part(0)?))),
            WeightFormat::Affine { bits, group } => Ok(Matrix::Affine(AffineMatrix {
                bits,
                group,
                packed: part(0)?.as_slice(),
                scales: call.floats(self.first + 1, part(1)?),
                biases: call.floats(self.first + 2, part(2)?),
            })),
            WeightFormat::Block { codes, block: [block_rows, block_columns], period } => {
                let scales = match call.dtype_of(self.first + 1) {
                    DType::F8E8M0 => BlockScales::E8m0(part(1)?.as_slice()),
                    DType::F8E4M3 => BlockScales::E4m3(part(1)?.as_slice()),
                    _ => BlockScales::F32(part(1)?.as_slice()),
                };
                let bytes = part(0)?.as_slice();
                let first = 0;
                let matrix = BlockMatrix { codes, bytes, scales, block_rows, block_columns, period, first };
                Ok(Matrix::Block(matrix))
            }
        }
    }
}

/// Weights of a product that need no memory of their own.
const FEW: usize = 4;

pub(super) fn linear(call: &Call<'_>, format: WeightFormat, weights: usize) -> Result<Outputs, ArrayError> {
    let x = call.dense(0)?;
    let (m, k) = (call.shape_of(0)[0], call.shape_of(0)[1]);
    let first_parts = (0..weights).map(|i| 1 + i * format.parts());
    let mut parts: SmallVec<[WeightParts<'_>; FEW]> = SmallVec::new();
    let mut products: SmallVec<[(Buffer, Shape); FEW]> = SmallVec::new();
    for first in first_parts {
        let shape = Shape::from([m, call.shape_of(first)[0]]);
        parts.push(WeightParts::new(call, first, format)?);
        products.push((call.buffer(shape.elements(), call.dtype())?, shape));
    }
    let mut targets: SmallVec<[kernels::LinearTarget<'_>; FEW]> = SmallVec::new();
    for (parts, (product, shape)) in parts.iter().zip(&mut products) {
        let out = bytemuck::cast_slice_mut(product.bytes_mut());
        targets.push(kernels::LinearTarget::new(parts.matrix(call)?, shape.width(), out));
    }
    kernels::linears(call.kernels(), x.as_slice(), m, k, &mut targets);
    drop(targets);
    let mut outputs =
        products.into_iter().map(|(product, shape)| Data::dense(Storage::Owned(product), &shape));
    let first = outputs.next().ok_or(ArrayError::NotComputed)?;
    Ok(Outputs { first, further: outputs.collect() })
}

pub(super) fn grouped_linear(
    call: &Call<'_>,
    format: WeightFormat,
    own_rows: bool,
) -> Result<Data, ArrayError> {
    let (x, offsets) = (call.dense(0)?, call.dense(1)?);
    let given = if own_rows { None } else { Some(call.dense(2)?) };
    let parts = WeightParts::new(call, if own_rows { 2 } else { 3 }, format)?;
    let weight = parts.matrix(call)?;
    let (n, k) = (call.shape()[1], call.shape_of(0)[1]);
    let rows = given.as_ref().map(Dense::as_slice);
    call.produce(|out| {
        kernels::grouped_linear(call.kernels(), x.as_slice(), weight, rows, offsets.as_slice(), n, k, out);
    })
}

pub(super) fn gather_rows(call: &Call<'_>, format: WeightFormat) -> Result<Data, ArrayError> {
    let ids = call.dense(0)?;
    let parts = WeightParts::new(call, 1, format)?;
    let table = parts.matrix(call)?;
    call.produce(|out| kernels::gather_rows(call.kernels(), table, ids.as_slice(), call.shape()[1], out))
}
