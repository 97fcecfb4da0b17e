//! A weight that can be quantised, in whatever format it is stored: its shape, and its rows as float32.

use std::ops::Range;

use ds4_dtype::{DType, Floats};

use super::QuantizeError;
use crate::block_scaled::is_scale;
use crate::tensor::floats;
use crate::{BlockScaled, Checkpoint, Tensor};

/// A matrix, or one for each expert.
pub(crate) enum Source<'a> {
    Floats(&'a Tensor),
    Blocks(BlockScaled<'a>),
}

impl<'a> Source<'a> {
    /// The weight stored in `tensor`; `None` if it is no matrix of numbers, or scales of one.
    pub(crate) fn of(checkpoint: &'a Checkpoint, tensor: &'a Tensor) -> Result<Option<Self>, QuantizeError> {
        if let Some(weight) = BlockScaled::of(checkpoint, tensor) {
            let fault = |fault| QuantizeError::Blocks { tensor: tensor.name.clone(), fault };
            return weight.map(|weight| Some(Self::Blocks(weight))).map_err(fault);
        }
        if is_scale(checkpoint, &tensor.name) {
            return Ok(None);
        }
        let matrix = tensor.dtype.is_float() && matches!(tensor.shape.len(), 2 | 3) && !tensor.is_empty();
        Ok(matrix.then_some(Self::Floats(tensor)))
    }

    /// In elements.
    pub(crate) fn shape(&self) -> Vec<usize> {
        match self {
            Self::Floats(tensor) => tensor.shape.clone(),
            Self::Blocks(weight) => weight.shape(),
        }
    }

    pub(crate) fn width(&self) -> usize {
        self.shape().last().copied().unwrap_or(1)
    }

    /// Rows of all matrices.
    pub(crate) fn row_count(&self) -> usize {
        let shape = self.shape();
        shape[..shape.len() - 1].iter().product()
    }

    /// The float type that its values have, or would have decoded.
    pub(crate) fn float_type(&self) -> DType {
        match self {
            Self::Floats(tensor) => tensor.dtype,
            Self::Blocks(weight) => weight.exact_type(),
        }
    }

    /// The tensor that means nothing without this one.
    pub(crate) fn scales_name(&self) -> Option<&'a str> {
        match self {
            Self::Floats(_) => None,
            Self::Blocks(weight) => Some(weight.scales_name()),
        }
    }

    /// Values of some rows.
    pub(crate) fn rows(&self, rows: Range<usize>) -> Vec<f32> {
        match self {
            Self::Floats(tensor) => {
                let row_bytes = self.width() * tensor.dtype.size();
                let bytes = &tensor.bytes.as_ref()[rows.start * row_bytes..rows.end * row_bytes];
                floats(tensor.dtype, bytes).map_or_else(Vec::new, Floats::to_f32)
            }
            Self::Blocks(weight) => weight.rows(rows),
        }
    }
}
