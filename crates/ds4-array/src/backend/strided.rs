//! Copies of views with gaps into row-major order.

use ds4_dtype::DType;

use crate::Shape;
use crate::data::Data;
use crate::shape::MAX_RANK;

/// Writes the elements of a view, in row-major order, to a slice of the right length.
pub(crate) fn gather_dense(data: &Data, shape: &Shape, dtype: DType, out: &mut [u8]) {
    if out.is_empty() {
        return;
    }
    let size = dtype.size();
    let source = data.storage.bytes();
    let (run, outer) = longest_run(data, shape);
    let mut index = [0usize; MAX_RANK];
    for chunk in out.chunks_exact_mut(run * size) {
        let at: usize = (0..outer).map(|axis| index[axis] * data.strides[axis]).sum::<usize>() + data.offset;
        chunk.copy_from_slice(&source[at * size..][..run * size]);
        for axis in (0..outer).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// How many elements lie one after the other, and how many axes are outside of such a run.
fn longest_run(data: &Data, shape: &Shape) -> (usize, usize) {
    let mut run = 1;
    for axis in (0..shape.len()).rev() {
        if shape[axis] != 1 && data.strides[axis] != run {
            return (run, axis + 1);
        }
        run *= shape[axis];
    }
    (run, 0)
}

#[cfg(test)]
mod tests {
    use crate::{Array, Device, Stream, ops};

    #[test]
    fn views_with_gaps_come_out_in_order() {
        let stream = Stream::new(&Device::reference());
        let numbers: Vec<u32> = (0..24).collect();
        let x = Array::from_slice(&stream, &numbers, &[2, 3, 4]).unwrap();
        let view = ops::slice(&x, &[0, 1, 1], [2, 2, 2]).unwrap();
        assert_eq!(view.to_vec::<u32>().unwrap(), [5, 6, 9, 10, 17, 18, 21, 22]);
        let row = ops::slice(&x, &[1, 2, 0], [1, 1, 4]).unwrap();
        assert_eq!(row.to_vec::<u32>().unwrap(), [20, 21, 22, 23]);
        let column = ops::slice_columns(&x, 3, 1).unwrap();
        assert_eq!(column.to_vec::<u32>().unwrap(), [3, 7, 11, 15, 19, 23]);
    }
}
