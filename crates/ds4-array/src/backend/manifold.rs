//! Manifold-constrained hyper-connections.

use ds4_cpu_kernels as kernels;

use crate::ArrayError;
use crate::data::Data;
use crate::primitive::ManifoldSpec;

use super::call::Call;

pub(super) fn coefficients(call: &Call<'_>, spec: ManifoldSpec) -> Result<Data, ArrayError> {
    let (x, scale, base) = (call.dense(0)?, call.dense(1)?, call.dense(2)?);
    let args = kernels::ManifoldArgs {
        scale: scale.as_slice(),
        base: base.as_slice(),
        streams: spec.streams,
        iterations: spec.iterations,
        eps: spec.eps,
    };
    call.produce(|out| kernels::manifold_coefficients(call.kernels(), x.as_slice(), &args, out))
}

pub(super) fn collapse(call: &Call<'_>, streams: usize) -> Result<Data, ArrayError> {
    let (x, weights) = (call.dense(0)?, call.dense(1)?);
    let (stride, d) = (call.shape_of(1)[1], call.shape()[1]);
    call.produce(|out| {
        kernels::stream_collapse(call.kernels(), x.as_slice(), weights.as_slice(), stride, streams, d, out);
    })
}

pub(super) fn expand(call: &Call<'_>, streams: usize) -> Result<Data, ArrayError> {
    let (x, y, coefficients) = (call.dense(0)?, call.dense(1)?, call.dense(2)?);
    let d = call.shape_of(1)[1];
    call.produce(|out| {
        let (x, y, coefficients) = (x.as_slice(), y.as_slice(), coefficients.as_slice());
        kernels::stream_expand(call.kernels(), x, y, coefficients, streams, d, out);
    })
}
