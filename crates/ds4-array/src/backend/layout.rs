//! Fills, conversions, views, joins and replaced rows.

use ds4_cpu_kernels as kernels;
use ds4_dtype::{DType, Floats, bf16, f16};

use crate::ArrayError;
use crate::data::{Data, Storage};

use super::call::Call;
use super::strided::gather_dense;

pub(super) fn fill(call: &Call<'_>, value: f32) -> Result<Data, ArrayError> {
    match call.dtype() {
        DType::F32 => call.produce(|out: &mut [f32]| out.fill(value)),
        DType::F16 => call.produce(|out: &mut [f16]| out.fill(f16::from_f32(value))),
        DType::BF16 => call.produce(|out: &mut [bf16]| out.fill(bf16::from_f32(value))),
        DType::U8 | DType::F8E4M3 | DType::F8E8M0 => call.produce(|out: &mut [u8]| out.fill(value as u8)),
        DType::I8 => call.produce(|out: &mut [i8]| out.fill(value as i8)),
        DType::U32 => call.produce(|out: &mut [u32]| out.fill(value as u32)),
        DType::I32 => call.produce(|out: &mut [i32]| out.fill(value as i32)),
        DType::I64 => call.produce(|out: &mut [i64]| out.fill(value as i64)),
    }
}

pub(super) fn copy(call: &Call<'_>) -> Result<Data, ArrayError> {
    let mut buffer = call.buffer(call.shape().elements(), call.dtype())?;
    gather_dense(call.view(0)?, call.shape(), call.dtype(), buffer.bytes_mut());
    Ok(Data::dense(Storage::Owned(buffer), call.shape()))
}

pub(super) fn as_type(call: &Call<'_>) -> Result<Data, ArrayError> {
    let dense = call.dense(0)?;
    let source = call.floats(0, &dense);
    let mut buffer = call.buffer(call.shape().elements(), call.dtype())?;
    convert(call, source, call.dtype(), buffer.bytes_mut());
    Ok(Data::dense(Storage::Owned(buffer), call.shape()))
}

/// Writes `source` in the float format `dtype`.
fn convert(call: &Call<'_>, source: Floats<'_>, dtype: DType, out: &mut [u8]) {
    match (source, dtype) {
        (_, DType::F32) => kernels::convert(call.kernels(), source, bytemuck::cast_slice_mut(out)),
        (Floats::F32(values), DType::F16) => {
            kernels::to_f16(call.kernels(), values, bytemuck::cast_slice_mut(out))
        }
        (Floats::F32(values), DType::BF16) => {
            kernels::to_bf16(call.kernels(), values, bytemuck::cast_slice_mut(out));
        }
        (_, DType::F16) => {
            let out: &mut [f16] = bytemuck::cast_slice_mut(out);
            out.iter_mut().enumerate().for_each(|(i, o)| *o = f16::from_f32(source.get(i)));
        }
        (_, _) => {
            let out: &mut [bf16] = bytemuck::cast_slice_mut(out);
            out.iter_mut().enumerate().for_each(|(i, o)| *o = bf16::from_f32(source.get(i)));
        }
    }
}

pub(super) fn reshape(call: &Call<'_>) -> Result<Data, ArrayError> {
    let data = call.view(0)?;
    if let Some(view) = data.in_shape(call.shape_of(0), call.shape()) {
        return Ok(view);
    }
    let mut buffer = call.buffer(call.shape().elements(), call.dtype())?;
    gather_dense(data, call.shape_of(0), call.dtype(), buffer.bytes_mut());
    Ok(Data::dense(Storage::Owned(buffer), call.shape()))
}

pub(super) fn slice(call: &Call<'_>, start: &[usize]) -> Result<Data, ArrayError> {
    Ok(call.view(0)?.part_from(start))
}

pub(super) fn concatenate(call: &Call<'_>, axis: usize) -> Result<Data, ArrayError> {
    let outer: usize = call.shape()[..axis].iter().product();
    let size = call.dtype().size();
    let stride = call.shape()[axis..].iter().product::<usize>() * size;
    let mut buffer = call.buffer(call.shape().elements(), call.dtype())?;
    let out = buffer.bytes_mut();
    let mut column = 0;
    for input in 0..call.len() {
        let run = call.shape_of(input)[axis..].iter().product::<usize>() * size;
        let dense = call.dense(input)?;
        let source: &[u8] = dense.as_slice();
        for row in 0..outer {
            out[row * stride + column..][..run].copy_from_slice(&source[row * run..][..run]);
        }
        column += run;
    }
    Ok(Data::dense(Storage::Owned(buffer), call.shape()))
}

pub(super) fn slice_update(call: &mut Call<'_>, start: usize) -> Result<Data, ArrayError> {
    let mut data = call.writable(0)?;
    let row = call.shape()[1..].iter().product::<usize>() * call.dtype().size();
    let rows = call.dense(1)?;
    let source = call.floats(1, &rows);
    let count = call.shape_of(1)[0];
    let bytes = call.shape().elements() * call.dtype().size();
    let out = data.exclusive(bytes).ok_or(ArrayError::NotComputed)?;
    convert(call, source, call.dtype(), &mut out[start * row..][..count * row]);
    drop(rows);
    Ok(data)
}
