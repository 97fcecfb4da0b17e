//! Quantises one tensor, a chunk of rows at a time, the rows of a chunk shared among threads.

use std::num::NonZero;
use std::ops::Range;
use std::thread;

use ds4_dtype::{AffineLayout, AffineRow, DType, bf16, f16};

use super::QuantizeError;
use super::plan::Names;
use super::source::Source;
use crate::{ShardWriter, Tensor};

/// Elements one thread takes at a time: large enough to be worth a thread, small enough to hold many.
const ELEMENTS_A_THREAD: usize = 1 << 20;

/// Writes the three tensors that the weight stored in `tensor` becomes. `advance` is told the bytes of each part read.
pub(crate) fn write(
    writer: &mut ShardWriter,
    tensor: &Tensor,
    source: &Source<'_>,
    names: &Names,
    layout: AffineLayout,
    advance: &mut dyn FnMut(usize),
) -> Result<(), QuantizeError> {
    let (rows, float_type) = (source.row_count(), source.float_type());
    let rows_a_thread = (ELEMENTS_A_THREAD / source.width()).max(1);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let row_bytes = tensor.bytes.as_ref().len() / rows;
    for first in (0..rows).step_by(rows_a_thread * threads) {
        let end = rows.min(first + rows_a_thread * threads);
        let parts = (first..end).step_by(rows_a_thread).map(|row| row..end.min(row + rows_a_thread));
        let parts: Vec<Range<usize>> = parts.collect();
        for (encoded, part) in encode_parts(source, &parts, layout).into_iter().zip(parts) {
            let encoded = encoded.map_err(|source| QuantizeError::Tensor {
                tensor: tensor.name.clone(),
                row: part.start,
                source,
            })?;
            writer.write(&names.weight, bytemuck::cast_slice(&encoded.packed))?;
            writer.write(&names.scales, &stored(&encoded.scales, float_type))?;
            writer.write(&names.biases, &stored(&encoded.biases, float_type))?;
        }
        advance((end - first) * row_bytes);
    }
    Ok(())
}

type Encoded = Result<AffineRow, ds4_dtype::AffineError>;

fn encode_parts(source: &Source<'_>, parts: &[Range<usize>], layout: AffineLayout) -> Vec<Encoded> {
    thread::scope(|scope| {
        let workers: Vec<_> = parts
            .iter()
            .map(|part| scope.spawn(move || layout.encode_row(&source.rows(part.clone()))))
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
