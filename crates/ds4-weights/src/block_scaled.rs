//! Weights of small floats with a scale for each block, as DeepSeek and GLM publish them: which tensors belong together,
//! how large the blocks are, and rows as float32. Computing with them undecoded is the array library's business.

use std::ops::Range;

use ds4_dtype::DType;
use ds4_dtype::block_formats::small_floats::{E4M3, E8M0, e2m1_pair};

use crate::{Checkpoint, Tensor};

/// A weight [.., n, k] in E4M3, or two E2M1 in a byte, with its scales.
#[derive(Clone, Debug)]
pub struct BlockScaled<'a> {
    codes: &'a Tensor,
    scales: &'a Tensor,
    /// Rows and columns that share a scale.
    block: [usize; 2],
    /// Rows of one matrix, and its columns.
    size: [usize; 2],
}

/// What keeps a tensor of small floats from being read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockFault {
    /// None of these tensors is there.
    #[error("its scales are missing, looked for as `{}` and `{}`", names[0], names[1])]
    NoScales {
        /// Where scales are looked for.
        names: [String; 2],
    },
    /// The scales have another type or shape than any size of blocks gives.
    #[error("its scales `{name}` are {actual}, which fits no size of blocks")]
    Scales {
        /// Their name.
        name: String,
        /// Type and shape.
        actual: String,
    },
}

impl<'a> BlockScaled<'a> {
    /// The weight whose codes are `codes`; `None` if they are none: other types, scales of other codes, or bytes that are no
    /// matrix. E4M3 is one value each, bytes are packed pairs of E2M1.
    pub fn of(checkpoint: &'a Checkpoint, codes: &'a Tensor) -> Option<Result<Self, BlockFault>> {
        let packed = match codes.dtype {
            DType::F8E4M3 => false,
            DType::U8 | DType::I8 => true,
            _ => return None,
        };
        let names = scale_names(&codes.name);
        match names.iter().find_map(|name| checkpoint.get(name)) {
            Some(scales) => Some(Self::new(codes, scales, packed)),
            None if is_scale(checkpoint, &codes.name) || (packed && codes.shape.len() < 2) => None,
            None => Some(Err(BlockFault::NoScales { names })),
        }
    }

    fn new(codes: &'a Tensor, scales: &'a Tensor, packed: bool) -> Result<Self, BlockFault> {
        let mut shape = codes.shape.clone();
        if let Some(width) = shape.last_mut().filter(|_| packed) {
            *width *= 2;
        }
        match (is_scale_type(scales.dtype), block_of_grid(&scales.shape, &shape), shape.as_slice()) {
            (true, Some(block), &[.., n, k]) => Ok(Self { codes, scales, block, size: [n, k] }),
            _ => Err(BlockFault::Scales {
                name: scales.name.clone(),
                actual: format!("{} {:?}", scales.dtype, scales.shape),
            }),
        }
    }

    /// The name of its scales.
    pub fn scales_name(&self) -> &'a str {
        &self.scales.name
    }

    /// Its shape in elements.
    pub fn shape(&self) -> Vec<usize> {
        let mut shape = self.codes.shape.clone();
        let axes = shape.len();
        shape[axes - 1] = self.size[1];
        shape
    }

    /// The smallest float type that holds all its values exactly: a code and a scale of few bits have few bits together.
    pub fn exact_type(&self) -> DType {
        if self.scales.dtype == DType::F32 { DType::F32 } else { DType::BF16 }
    }

    /// Values of the rows `rows`, counting every dimension but the last as rows.
    ///
    /// # Panics
    /// If there are no such rows.
    pub fn rows(&self, rows: Range<usize>) -> Vec<f32> {
        let [n, k] = self.size;
        let (grid_rows, grid_columns) = (n.div_ceil(self.block[0]), k.div_ceil(self.block[1]));
        let mut values = Vec::with_capacity(rows.len() * k);
        for row in rows {
            let start = values.len();
            let codes = self.codes.row(row);
            match self.codes.dtype {
                DType::F8E4M3 => values.extend(codes.iter().map(|&code| E4M3[usize::from(code)])),
                _ => values.extend(codes.iter().flat_map(|&byte| e2m1_pair(byte))),
            }
            let scale_row = row / n * grid_rows + row % n / self.block[0];
            for (column, block) in values[start..].chunks_mut(self.block[1]).enumerate() {
                let scale = self.scale(scale_row * grid_columns + column);
                block.iter_mut().for_each(|value| *value *= scale);
            }
        }
        values
    }

    fn scale(&self, index: usize) -> f32 {
        let bytes = self.scales.bytes.as_ref();
        match self.scales.dtype {
            DType::F32 => {
                let [a, b, c, d] = bytes.as_chunks().0[index];
                f32::from_le_bytes([a, b, c, d])
            }
            DType::F8E4M3 => E4M3[usize::from(bytes[index])],
            _ => E8M0[usize::from(bytes[index])],
        }
    }
}

/// Where the scales of the codes `name` may be.
pub fn scale_names(name: &str) -> [String; 2] {
    let weight = name.strip_suffix(".weight").unwrap_or(name);
    [format!("{name}_scale_inv"), format!("{weight}.scale")]
}

/// Whether scales may have this type. Bytes without a float type are powers of two.
pub fn is_scale_type(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F8E8M0 | DType::F8E4M3 | DType::U8)
}

/// Whether a tensor holds the scales of another one's codes.
pub(crate) fn is_scale(checkpoint: &Checkpoint, name: &str) -> bool {
    let inverse = name.strip_suffix("_scale_inv");
    let plain = name.strip_suffix(".scale");
    let weight = plain.map(|weight| format!("{weight}.weight"));
    let has_codes = |codes: &str| checkpoint.get(codes).is_some_and(|codes| is_code_type(codes.dtype));
    [inverse, plain, weight.as_deref()].into_iter().flatten().any(has_codes)
}

fn is_code_type(dtype: DType) -> bool {
    matches!(dtype, DType::F8E4M3 | DType::U8 | DType::I8)
}

/// Rows and columns of the blocks of a matrix of `shape` [.., n, k] that has a `grid` of scales. Sizes of blocks are powers
/// of two, which leaves one size for each number of blocks; with one block for all any size will do.
pub fn block_of_grid(grid: &[usize], shape: &[usize]) -> Option<[usize; 2]> {
    let (axes, sizes) = (grid.len(), shape.len());
    if axes != sizes || axes < 2 || grid[..axes - 2] != shape[..sizes - 2] {
        return None;
    }
    let side = |size: usize, count: usize| {
        let side = size.checked_div(count)?.max(1);
        let side = if side * count < size { side + 1 } else { side };
        let side = side.next_power_of_two();
        (size.div_ceil(side) == count).then_some(side)
    };
    let block = [side(shape[sizes - 2], grid[axes - 2])?, side(shape[sizes - 1], grid[axes - 1])?];
    (block[1].is_multiple_of(16) || grid[axes - 1] == 1).then_some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_scales_says_how_large_blocks_are() {
        for (shape, grid, block) in [
            (vec![256, 384], vec![2, 3], Some([128, 128])),
            (vec![300, 200], vec![3, 2], Some([128, 128])),
            (vec![300, 256], vec![300, 8], Some([1, 32])),
            (vec![300, 256], vec![300, 16], Some([1, 16])),
            (vec![5, 300, 256], vec![5, 3, 2], Some([128, 128])),
            (vec![64, 48], vec![1, 1], Some([64, 64])),
            (vec![300, 256], vec![4, 2], None),
            (vec![300, 256], vec![300, 64], None),
            (vec![5, 300, 256], vec![3, 2], None),
            (vec![300, 256], vec![0, 2], None),
        ] {
            assert_eq!(block_of_grid(&grid, &shape), block, "{grid:?} for {shape:?}");
        }
    }
}
