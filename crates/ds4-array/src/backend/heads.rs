//! Matrix products in which every head has a matrix of its own.

use ds4_cpu_kernels::{self as kernels, HeadMatrices};

use crate::ArrayError;
use crate::data::Data;
use crate::primitive::{HeadSpec, WeightFormat};

use super::call::Call;
use super::linear::WeightParts;

pub(super) fn head_linear(call: &Call<'_>, format: WeightFormat, spec: HeadSpec) -> Result<Data, ArrayError> {
    let x = call.dense(0)?;
    let parts = WeightParts::new(call, 1, format)?;
    let weight = parts.matrix(call)?;
    let HeadSpec { stride, first, rows, transposed } = spec;
    let at = HeadMatrices { heads: call.shape()[1], stride, first, rows };
    call.produce(|out| {
        if transposed {
            kernels::head_linear_transposed(call.kernels(), x.as_slice(), weight, at, call.shape()[2], out);
        } else {
            kernels::head_linear(call.kernels(), x.as_slice(), weight, at, call.shape_of(0)[2], out);
        }
    })
}
