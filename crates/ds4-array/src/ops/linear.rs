//! Matrix products with weights in any storage format, and row lookup in them.

use ds4_dtype::DType;
use smallvec::SmallVec;

use crate::array::Inputs;
use crate::primitive::{Primitive, WeightFormat};
use crate::{Array, ArrayError, Shape};

use super::check;

/// A weight matrix [N, K] (out, in), or one for each expert [E, N, K].
#[derive(Clone, Debug)]
pub struct Weight {
    format: WeightFormat,
    parts: Vec<Array>,
    shape: Shape,
}

impl Weight {
    /// A weight in a float format.
    pub fn dense(weight: Array) -> Self {
        Self { format: WeightFormat::Dense, shape: *weight.shape(), parts: vec![weight] }
    }

    /// A quantised weight: `packed` [.., N, K * bits / 32] u32, `scales` and `biases` [.., N, K / group] floats;
    /// value = scale * q + bias. Bits are 4 or 8.
    pub fn affine(
        packed: Array,
        scales: Array,
        biases: Array,
        bits: u32,
        group: usize,
    ) -> Result<Self, ArrayError> {
        let op = "affine";
        check::ids(op, "weight", &packed)?;
        check::floats(op, "scales", &scales)?;
        check::floats(op, "biases", &biases)?;
        check::value(op, "bits", bits as usize, matches!(bits, 4 | 8), || "4 or 8".to_owned())?;
        check::value(op, "group", group, matches!(group, 32 | 64 | 128), || "32, 64 or 128".to_owned())?;
        let shape = packed.shape().with_width(packed.shape().width() * 32 / bits as usize);
        let groups = shape.with_width(shape.width() / group);
        for (argument, array) in [("scales", &scales), ("biases", &biases)] {
            if *array.shape() != groups || !shape.width().is_multiple_of(group) {
                return Err(check::wrong_shape(op, argument, format!("{groups:?}"), *array.shape()));
            }
        }
        Ok(Self { format: WeightFormat::Affine { bits, group }, parts: vec![packed, scales, biases], shape })
    }

    pub(super) fn from_parts(format: WeightFormat, parts: Vec<Array>, shape: Shape) -> Self {
        Self { format, parts, shape }
    }

    /// [N, K] or [E, N, K].
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Bytes as stored.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Array::bytes).sum()
    }

    /// The arrays it consists of.
    pub fn parts(&self) -> &[Array] {
        &self.parts
    }

    pub(super) fn format(&self) -> WeightFormat {
        self.format
    }

    pub(super) fn inputs(&self, first: &[&Array]) -> Inputs {
        first.iter().map(|&array| array.clone()).chain(self.parts.iter().cloned()).collect()
    }
}

/// x [L, K] times the transposed weight [N, K]: [L, N].
pub fn linear(x: &Array, weight: &Weight) -> Result<Array, ArrayError> {
    let [out] = linears(x, [weight])?;
    Ok(out)
}

/// [`linear`] with several weights [N, K], each with its own N. Those of one format are computed together, which is faster than
/// one after the other, but also if not all of them are wanted.
pub fn linears<const W: usize>(x: &Array, weights: [&Weight; W]) -> Result<[Array; W], ArrayError> {
    let op = "linear";
    check::f32(op, "x", x)?;
    let mut shapes = [*x.shape(); W];
    for (weight, shape) in weights.iter().zip(&mut shapes) {
        let [n, k] = matrix(op, weight)?;
        check::shape(op, "x", x, &[None, Some(k)])?;
        *shape = shape.with_width(n);
    }
    let mut producers: SmallVec<[(WeightFormat, Array, usize); 2]> = SmallVec::new();
    Ok(std::array::from_fn(|i| {
        let (format, shape) = (weights[i].format, shapes[i]);
        if let Some((_, producer, outputs)) = producers.iter_mut().find(|(of, ..)| *of == format) {
            *outputs += 1;
            return producer.further(*outputs - 1, shape, DType::F32);
        }
        let together = || weights.iter().filter(|weight| weight.format == format);
        let inputs = std::iter::once(x).chain(together().flat_map(|weight| &weight.parts)).cloned();
        let primitive = Primitive::Linear { format, weights: together().count() };
        let producer = Array::lazy(x.stream(), shape, DType::F32, primitive, inputs);
        producers.push((format, producer.clone(), 1));
        producer
    }))
}

/// For each pair p: row `rows[p]` of x [L, K], or row p without `rows`, times the transposed matrix of its expert;
/// pairs are sorted by expert and `offsets` [E + 1] tells where each expert's begin. Weight [E, N, K], result [P, N].
pub fn grouped_linear(
    x: &Array,
    rows: Option<&Array>,
    offsets: &Array,
    weight: &Weight,
) -> Result<Array, ArrayError> {
    let op = "grouped_linear";
    check::f32(op, "x", x)?;
    check::ids(op, "offsets", offsets)?;
    let shape = weight.shape;
    let &[experts, n, k] = &*shape else {
        return Err(check::wrong_shape(op, "weight", "[E, N, K]".to_owned(), shape));
    };
    check::shape(op, "x", x, &[None, Some(k)])?;
    if let Some(rows) = rows {
        check::ids(op, "rows", rows)?;
        check::shape(op, "rows", rows, &[None])?;
    }
    check::shape(op, "offsets", offsets, &[Some(experts + 1)])?;
    let out = Shape::from([rows.unwrap_or(x).shape()[0], n]);
    let inputs = match rows {
        Some(rows) => weight.inputs(&[x, offsets, rows]),
        None => weight.inputs(&[x, offsets]),
    };
    let primitive = Primitive::GroupedLinear { format: weight.format, own_rows: rows.is_none() };
    Ok(Array::lazy(x.stream(), out, DType::F32, primitive, inputs))
}

/// The rows `ids` `[L]` of a table [V, K], as float32 [L, K].
pub fn gather_rows(table: &Weight, ids: &Array) -> Result<Array, ArrayError> {
    let op = "gather_rows";
    check::ids(op, "ids", ids)?;
    check::shape(op, "ids", ids, &[None])?;
    let [_, k] = matrix(op, table)?;
    let shape = Shape::from([ids.shape()[0], k]);
    Ok(Array::lazy(
        ids.stream(),
        shape,
        DType::F32,
        Primitive::GatherRows(table.format),
        table.inputs(&[ids]),
    ))
}

pub(super) fn matrix(op: &'static str, weight: &Weight) -> Result<[usize; 2], ArrayError> {
    if weight.format == WeightFormat::Dense {
        check::floats(op, "weight", &weight.parts[0])?;
    }
    match *weight.shape {
        [n, k] => Ok([n, k]),
        _ => Err(check::wrong_shape(op, "weight", "[N, K]".to_owned(), weight.shape)),
    }
}
