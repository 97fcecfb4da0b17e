//! Weights of small floats with a scale for each block, as checkpoints are published.

use ds4_dtype::DType;

pub use crate::primitive::BlockCodes;

use crate::primitive::WeightFormat;
use crate::{Array, ArrayError, Shape};

use super::check;
use super::linear::Weight;

impl Weight {
    /// A weight of `shape` [N, K] or [E, N, K] in small floats: `codes` [.., N, K] E4M3, or [.., N, K / 2] bytes of packed
    /// E2M1. Each `period` rows are a matrix of their own, cut into blocks of `block` rows and columns; `scales`
    /// [matrices * ceil(period / rows), ceil(K / columns)] are float32, E8M0 or E4M3. value = code * scale.
    pub fn block(
        codes: Array,
        scales: Array,
        shape: Shape,
        block: [usize; 2],
        period: usize,
    ) -> Result<Self, ArrayError> {
        let op = "block";
        let (kind, width) = match codes.dtype() {
            DType::F8E4M3 => (BlockCodes::E4m3, shape.width()),
            DType::U8 | DType::I8 => (BlockCodes::E2m1, shape.width() / 2),
            actual => {
                let expected = "F8_E4M3, or packed in U8 or I8";
                return Err(ArrayError::DType { op, argument: "codes", expected, actual });
            }
        };
        if *codes.shape() != shape.with_width(width) {
            let expected = format!("{:?}", shape.with_width(width));
            return Err(check::wrong_shape(op, "codes", expected, *codes.shape()));
        }
        if !matches!(scales.dtype(), DType::F32 | DType::F8E8M0 | DType::F8E4M3) {
            let (expected, actual) = ("F32, F8_E8M0 or F8_E4M3", scales.dtype());
            return Err(ArrayError::DType { op, argument: "scales", expected, actual });
        }
        let [rows, columns] = block;
        let (n, k) = (shape.rows(), shape.width());
        check::value(op, "rows of a block", rows, rows > 0, || "at least 1".to_owned())?;
        check::value(op, "columns of a block", columns, columns % 16 == 0 || columns >= k, || {
            format!("a multiple of 16, or at least {k}")
        })?;
        check::value(op, "K", k, kind == BlockCodes::E4m3 || k % 16 == 0, || "a multiple of 16".to_owned())?;
        check::value(op, "period", period, period > 0 && n % period == 0, || format!("a divisor of {n}"))?;
        let expected = [n / period * period.div_ceil(rows), k.div_ceil(columns)];
        check::shape(op, "scales", &scales, &expected.map(Some))?;
        let format = WeightFormat::Block { codes: kind, block, period };
        Ok(Self::from_parts(format, vec![codes, scales], shape))
    }
}
