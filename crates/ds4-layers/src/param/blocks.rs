//! Weights of small floats with block scales: `X.weight` in E4M3 or packed E2M1, and beside it `X.weight_scale_inv` or
//! `X.scale`, or `X_scale_inv` where X is a tensor of all experts.

use std::sync::Arc;

use ds4_array::ops::Weight;
use ds4_array::{Array, ArrayError, DType, Shape};
use ds4_weights::{Tensor, block_of_grid, is_scale_type, scale_names};

use super::{ParamProblem, Scope};

/// Names of a weight's parts.
struct Names {
    codes: String,
    scales: String,
}

impl<'a> Scope<'a> {
    /// Whether the weight `name` is stored in small floats.
    pub(super) fn is_block(&self, name: &str) -> bool {
        self.block_names(name).is_some()
    }

    fn block_names(&self, name: &str) -> Option<Names> {
        let small = |tensor: &Tensor| matches!(tensor.dtype, DType::F8E4M3 | DType::U8 | DType::I8);
        let codes = [format!("{name}.weight"), name.to_owned()]
            .into_iter()
            .find(|codes| self.find(codes).is_some_and(small))?;
        let scales = scale_names(&codes);
        // Without scales the first name is reported as missing.
        let found = scales.iter().find(|scales| self.find(scales).is_some()).unwrap_or(&scales[0]);
        Some(Names { codes, scales: found.clone() })
    }

    /// The weight `name` of `shape` [.., n, k].
    pub(super) fn block_weight(&self, name: &str, shape: &[usize]) -> Weight {
        let Some(names) = self.block_names(name) else { return self.stand_in(shape) };
        self.params.count(shape.iter().product());
        let Some((codes, scales, block)) = self.block_parts(&names, shape) else {
            return self.stand_in(shape);
        };
        let (rows, k) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        let matrices: usize = shape[..shape.len() - 2].iter().product();
        let grid = [matrices * rows.div_ceil(block[0]), k.div_ceil(block[1])];
        let scales = self.array_of(scales, scale_type(scales), &grid);
        let codes = self.array_of(codes, codes.dtype, &codes.shape);
        self.block_of(codes, scales, shape, block, rows)
    }

    /// One [E, P * n, k] matrix from separate tensors `names`, P for each expert. Copies them, and lets go of the mapped ones.
    pub(super) fn stacked_blocks(&self, names: &[String], n: usize, shape: [usize; 3]) -> Weight {
        self.params.count(shape.iter().product());
        let k = shape[2];
        let (mut codes, mut scales) = (Vec::new(), Vec::new());
        let mut first = None;
        for name in names {
            let found = self.block_names(name).and_then(|names| self.block_parts(&names, &[n, k]));
            let Some((code, scale, block)) = found else {
                if self.block_names(name).is_none() {
                    self.params.missing(&self.full(&format!("{name}.weight")), &[n, k]);
                }
                continue;
            };
            let (kinds, expected) = (
                (code.dtype, scale_type(scale), block),
                *first.get_or_insert((code.dtype, scale_type(scale), block)),
            );
            if kinds != expected {
                self.params.wrong(
                    code,
                    format!("stored like the first expert, {} with {} scales", expected.0, expected.1),
                );
            }
            if !self.params.dry {
                codes.extend_from_slice(code.bytes.as_ref());
                scales.extend_from_slice(scale.bytes.as_ref());
                code.bytes.release();
                scale.bytes.release();
            }
        }
        let Some((dtype, scale_dtype, block)) = first else { return self.stand_in(&shape) };
        if self.params.dry || !self.params.problems.borrow().is_empty() {
            return self.stand_in(&shape);
        }
        let width = if dtype == DType::F8E4M3 { k } else { k / 2 };
        let grid = [names.len() * n.div_ceil(block[0]), k.div_ceil(block[1])];
        let array = |bytes, dtype, shape: &[usize]| {
            Array::from_external(&self.params.stream, Arc::new(bytes), dtype, shape)
        };
        let codes = array(codes, dtype, &[shape[0], shape[1], width]);
        self.block_of(codes, array(scales, scale_dtype, &grid), &shape, block, n)
    }

    /// Codes and scales, and the rows and columns of a block, which follow from the number of scales.
    fn block_parts(&self, names: &Names, shape: &[usize]) -> Option<(&'a Tensor, &'a Tensor, [usize; 2])> {
        let (n, k) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        let packed = self.find(&names.codes).is_some_and(|codes| codes.dtype != DType::F8E4M3);
        let mut stored = shape.to_vec();
        if packed {
            stored[shape.len() - 1] = k / 2;
        }
        let small = |dtype| matches!(dtype, DType::F8E4M3 | DType::U8 | DType::I8);
        let codes = self.params.take(&self.full(&names.codes), &stored, small, "small floats");
        let Some(scales) = self.find(&names.scales) else {
            self.params.missing(&self.full(&names.scales), &[n.div_ceil(128), k.div_ceil(128)]);
            return None;
        };
        self.params.taken.borrow_mut().insert(self.full(&names.scales));
        let block = block_of_grid(&scales.shape, shape);
        let Some(block) = block.filter(|_| is_scale_type(scales.dtype)) else {
            self.params.problems.borrow_mut().push(ParamProblem::Wrong {
                name: scales.name.clone(),
                expected: format!("F32, F8_E8M0 or F8_E4M3 scales of blocks of {n} x {k} elements"),
                actual: format!("{} {:?}", scales.dtype, scales.shape),
            });
            return None;
        };
        Some((codes?, scales, block))
    }

    fn block_of(
        &self,
        codes: Result<Array, ArrayError>,
        scales: Result<Array, ArrayError>,
        shape: &[usize],
        block: [usize; 2],
        period: usize,
    ) -> Weight {
        if self.params.dry {
            return self.stand_in(shape);
        }
        let sizes = Shape::try_new(shape).unwrap_or(Shape::from([0]));
        let made = codes.and_then(|codes| Weight::block(codes, scales?, sizes, block, period));
        made.unwrap_or_else(|error| Weight::dense(self.params.or_stand_in(Some(Err(error)), shape)))
    }

    fn array_of(&self, tensor: &Tensor, dtype: DType, shape: &[usize]) -> Result<Array, ArrayError> {
        Array::from_external(&self.params.stream, Arc::new(tensor.bytes.clone()), dtype, shape)
    }

    fn stand_in(&self, shape: &[usize]) -> Weight {
        Weight::dense(self.params.or_stand_in(None, shape))
    }
}

/// What the bytes of scales mean: those without a float type are powers of two.
fn scale_type(scales: &Tensor) -> DType {
    if scales.dtype == DType::U8 { DType::F8E8M0 } else { scales.dtype }
}
