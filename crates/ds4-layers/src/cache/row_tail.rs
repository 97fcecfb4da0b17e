//! The last rows of a stream of rows: what a causal convolution looks back at.

use ds4_array::{Array, DType, Stream, ops};
use smallvec::SmallVec;

use super::{CacheError, PartVisitor, StateSource, take_part};
use crate::{LayerError, Segment};

/// The last `R` rows [R, C] float32; zeros before the first token.
#[derive(Clone, Debug)]
pub struct RowTail {
    rows: Array,
}

impl RowTail {
    /// A tail of `rows` rows of `width` zeros.
    pub fn new(stream: &Stream, rows: usize, width: usize) -> Self {
        Self { rows: ops::fill(stream, [rows, width], DType::F32, 0.0) }
    }

    /// What the causal convolution of a batch, followed by silu, makes of its rows `x` [N, C]. Each sequence's rows go on from
    /// its tail, which moves on by them. `filters` is [R / dilation + 1, C].
    pub fn convolve<'t>(
        tails: impl Iterator<Item = &'t mut Self>,
        x: &Array,
        segments: &[Segment],
        filters: &Array,
        dilation: usize,
    ) -> Result<Array, LayerError> {
        let mut tails: SmallVec<[&mut Self; 1]> = tails.collect();
        let histories: SmallVec<[&Array; 1]> = tails.iter().map(|tail| &tail.rows).collect();
        let (out, next) =
            ops::causal_conv1d(x, &histories, Segment::row_counts(segments), filters, dilation, true)?;
        drop(histories);
        tails.iter_mut().zip(next).for_each(|(tail, next)| tail.rows = next);
        Ok(out)
    }

    /// Moves on by the rows `new` [L, C].
    pub fn push(&mut self, new: &Array) -> Result<(), LayerError> {
        let (keep, count) = (self.rows.shape()[0], new.shape()[0]);
        self.rows = if count >= keep {
            // A copy: a view would keep the whole chunk alive.
            ops::copy(&ops::slice_rows(new, count - keep, keep)?)?
        } else {
            ops::concatenate(&[&ops::slice_rows(&self.rows, count, keep - count)?, new], 0)?
        };
        Ok(())
    }

    pub(super) fn visit_parts(&self, name: &str, visit: &mut PartVisitor<'_>) {
        visit(format_args!("{name}"), &self.rows);
    }

    pub(super) fn restore(&mut self, name: &str, source: &mut StateSource<'_>) -> Result<(), CacheError> {
        self.rows = take_part(source, name, *self.rows.shape(), DType::F32)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ds4_array::Device;

    use super::*;

    #[test]
    fn the_tail_holds_the_last_rows_however_they_came() {
        let stream = Stream::new(&Device::reference());
        let row = |i: usize| [i as f32, 0.5];
        for sizes in [vec![5], vec![1, 1, 1, 1, 1], vec![2, 3], vec![4, 1]] {
            let mut tail = RowTail::new(&stream, 3, 2);
            let mut next = 1;
            for size in sizes {
                let values: Vec<f32> = (next..next + size).flat_map(row).collect();
                tail.push(&Array::from_slice(&stream, &values, &[size, 2]).unwrap()).unwrap();
                next += size;
            }
            assert_eq!(tail.rows.to_vec::<f32>().unwrap(), [3.0, 0.5, 4.0, 0.5, 5.0, 0.5]);
        }
    }
}
