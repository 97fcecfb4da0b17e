//! Pooling of windows of rows.

use ds4_cpu_kernels as kernels;

use crate::ArrayError;
use crate::data::Data;

use super::call::Call;

pub(super) fn gated_pool(call: &Call<'_>) -> Result<Data, ArrayError> {
    let (values, gates) = (call.dense(0)?, call.dense(1)?);
    let (window, width) = (call.shape_of(0)[1], call.shape()[1]);
    call.produce(|out| {
        kernels::gated_pool(call.kernels(), values.as_slice(), gates.as_slice(), window, width, out);
    })
}
