//! Quantises one tensor, a chunk of rows at a time, the rows of a chunk shared among threads.

use std::num::NonZero;
use std::thread;

use ds4_dtype::{AffineLayout, AffineRow, DType, Floats, bf16, f16};

use super::QuantizeError;
use super::plan::Names;
use crate::tensor::floats;
use crate::{ShardWriter, Tensor};

/// Elements one thread takes at a time: large enough to be worth a thread, small enough to hold many.
const ELEMENTS_A_THREAD: usize = 1 << 20;

/// Writes the three tensors that `tensor` becomes. `advance` is told the bytes of each part read.
pub(crate) fn write(
    writer: &mut ShardWriter,
    tensor: &Tensor,
    names: &Names,
    layout: AffineLayout,
    advance: &mut dyn FnMut(usize),
) -> Result<(), QuantizeError> {
    let width = tensor.shape.last().copied().unwrap_or(1);
    let rows_a_thread = (ELEMENTS_A_THREAD / width).max(1);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let part_bytes = rows_a_thread * width * tensor.dtype.size();
    let mut first_row = 0;
    for chunk in tensor.bytes.as_ref().chunks(part_bytes * threads) {
        let parts: Vec<&[u8]> = chunk.chunks(part_bytes).collect();
        for encoded in encode_parts(tensor.dtype, &parts, layout) {
            let encoded = encoded.map_err(|source| QuantizeError::Tensor {
                tensor: tensor.name.clone(),
                row: first_row,
                source,
            })?;
            writer.write(&names.weight, bytemuck::cast_slice(&encoded.packed))?;
            writer.write(&names.scales, &stored(&encoded.scales, tensor.dtype))?;
            writer.write(&names.biases, &stored(&encoded.biases, tensor.dtype))?;
            first_row += rows_a_thread;
        }
        advance(chunk.len());
    }
    Ok(())
}

type Encoded = Result<AffineRow, ds4_dtype::AffineError>;

fn encode_parts(dtype: DType, parts: &[&[u8]], layout: AffineLayout) -> Vec<Encoded> {
    thread::scope(|scope| {
        let workers: Vec<_> = parts
            .iter()
            .map(|part| {
                scope.spawn(move || {
                    let values = floats(dtype, part).map_or_else(Vec::new, Floats::to_f32);
                    layout.encode_row(&values)
                })
            })
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// `values` rounded to the float type `dtype`, as bytes. Only float tensors come here.
fn stored(values: &[f32], dtype: DType) -> Vec<u8> {
    match dtype {
        DType::BF16 => values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(),
        _ => bytemuck::cast_slice(values).to_vec(),
    }
}
