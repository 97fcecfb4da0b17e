//! Operations on single elements. The first operand is overwritten if nobody else holds it.

use ds4_cpu_kernels as kernels;

use crate::ArrayError;
use crate::data::Data;
use crate::primitive::{BinaryOp, Broadcast, UnaryOp};

use super::call::Call;

pub(super) fn unary(call: &mut Call<'_>, op: UnaryOp) -> Result<Data, ArrayError> {
    let mut data = call.writable(0)?;
    kernels::unary_in_place(call.kernels(), op, Call::elements_mut(&mut data, call.shape())?);
    Ok(data)
}

pub(super) fn scale(call: &mut Call<'_>, factor: f32) -> Result<Data, ArrayError> {
    let mut data = call.writable(0)?;
    scale_in_place(Call::elements_mut(&mut data, call.shape())?, factor);
    Ok(data)
}

pub(super) fn scaled_unary(
    call: &mut Call<'_>,
    before: f32,
    op: UnaryOp,
    after: f32,
) -> Result<Data, ArrayError> {
    let mut data = call.writable(0)?;
    let x = Call::elements_mut(&mut data, call.shape())?;
    scale_in_place(x, before);
    kernels::unary_in_place(call.kernels(), op, x);
    scale_in_place(x, after);
    Ok(data)
}

fn scale_in_place(x: &mut [f32], factor: f32) {
    if factor != 1.0 {
        x.iter_mut().for_each(|x| *x *= factor);
    }
}

pub(super) fn binary(call: &mut Call<'_>, op: BinaryOp, broadcast: Broadcast) -> Result<Data, ArrayError> {
    let mut data = call.writable(0)?;
    let dense = call.dense(1)?;
    let out = Call::elements_mut(&mut data, call.shape())?;
    let (cpu, b) = (call.kernels(), dense.as_slice());
    match broadcast {
        Broadcast::None => kernels::binary_in_place(cpu, op, out, b),
        Broadcast::Row => kernels::binary_row_in_place(cpu, op, out, b),
        Broadcast::Column => kernels::binary_column_in_place(cpu, op, out, b),
    }
    drop(dense);
    Ok(data)
}

pub(super) fn swiglu(call: &Call<'_>) -> Result<Data, ArrayError> {
    let (gate, up) = (call.rows(0)?, call.rows(1)?);
    call.produce(|out| kernels::swiglu(call.kernels(), gate.strided(), up.strided(), out))
}

pub(super) fn swiglu_clamped(call: &Call<'_>, limit: f32) -> Result<Data, ArrayError> {
    let (gate, up) = (call.rows(0)?, call.rows(1)?);
    call.produce(|out| {
        kernels::swiglu_clamped(call.kernels(), gate.strided(), up.strided(), limit, out);
    })
}

pub(super) fn sigmoid_gate(call: &Call<'_>) -> Result<Data, ArrayError> {
    let (x, gate) = (call.dense(0)?, call.dense(1)?);
    call.produce(|out| kernels::sigmoid_gate(call.kernels(), x.as_slice(), gate.as_slice(), out))
}
