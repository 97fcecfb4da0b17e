//! Shapes, views, joins and replaced rows.

use ds4_dtype::DType;

use crate::primitive::Primitive;
use crate::shape::MAX_RANK;
use crate::{Array, ArrayError, Shape, Stream};

use super::check;

/// An array whose every element is `value`, converted to the float format `dtype`.
pub fn fill(stream: &Stream, shape: impl Into<Shape>, dtype: DType, value: f32) -> Array {
    Array::lazy(stream, shape.into(), dtype, Primitive::Fill(value), Vec::new())
}

/// The elements of `x` in storage of their own: a small view would otherwise keep a large array alive.
pub fn copy(x: &Array) -> Result<Array, ArrayError> {
    Ok(Array::lazy(x.stream(), *x.shape(), x.dtype(), Primitive::Copy, [x.clone()]))
}

/// `x` in another float format; itself if it is in that format already.
pub fn as_type(x: &Array, dtype: DType) -> Result<Array, ArrayError> {
    check::floats("as_type", "x", x)?;
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    if !dtype.is_float() {
        let expected = "a float format";
        return Err(ArrayError::DType { op: "as_type", argument: "dtype", expected, actual: dtype });
    }
    Ok(Array::lazy(x.stream(), *x.shape(), dtype, Primitive::AsType, [x.clone()]))
}

/// The same elements in another shape; a view if they lie densely.
pub fn reshape(x: &Array, shape: impl Into<Shape>) -> Result<Array, ArrayError> {
    let shape = shape.into();
    if shape.elements() != x.shape().elements() {
        let expected = format!("as many elements as {shape:?}");
        return Err(check::wrong_shape("reshape", "x", expected, *x.shape()));
    }
    if shape == *x.shape() {
        return Ok(x.clone());
    }
    let view = x.view_now(shape, |data| data.in_shape(x.shape(), &shape));
    Ok(view.unwrap_or_else(|| Array::lazy(x.stream(), shape, x.dtype(), Primitive::Reshape, [x.clone()])))
}

/// The box of `x` from `start` with `shape`; always a view.
pub fn slice(x: &Array, start: &[usize], shape: impl Into<Shape>) -> Result<Array, ArrayError> {
    let shape = shape.into();
    let fits = start.len() == x.shape().len()
        && shape.len() == x.shape().len()
        && (0..shape.len()).all(|axis| start[axis] + shape[axis] <= x.shape()[axis]);
    if !fits {
        let expected = format!("room for {shape:?} from {start:?}");
        return Err(check::wrong_shape("slice", "x", expected, *x.shape()));
    }
    if shape == *x.shape() {
        return Ok(x.clone());
    }
    let mut from = [0; MAX_RANK];
    from[..start.len()].copy_from_slice(start);
    let view = x.view_now(shape, |data| Some(data.part_from(&from)));
    let later = || Array::lazy(x.stream(), shape, x.dtype(), Primitive::Slice { start: from }, [x.clone()]);
    Ok(view.unwrap_or_else(later))
}

/// `count` entries of the first axis, from `start`; a view.
pub fn slice_rows(x: &Array, start: usize, count: usize) -> Result<Array, ArrayError> {
    let mut from = [0; MAX_RANK];
    from[0] = start;
    slice(x, &from[..x.shape().len()], x.shape().with_first(count))
}

/// `count` entries of the last axis, from `start`; a view with gaps.
pub fn slice_columns(x: &Array, start: usize, count: usize) -> Result<Array, ArrayError> {
    let mut from = [0; MAX_RANK];
    from[x.shape().len().saturating_sub(1)] = start;
    slice(x, &from[..x.shape().len()], x.shape().with_width(count))
}

/// The arrays one after the other along `axis`. They agree in type and in all other axes.
pub fn concatenate(arrays: &[&Array], axis: usize) -> Result<Array, ArrayError> {
    let op = "concatenate";
    let first = *arrays.first().ok_or_else(|| ArrayError::Value {
        op,
        argument: "number of arrays",
        expected: "at least 1".to_owned(),
        actual: 0,
    })?;
    check::value(op, "axis", axis, axis < first.shape().len(), || format!("below {}", first.shape().len()))?;
    if arrays.len() == 1 {
        return Ok(first.clone());
    }
    let mut sizes: [Option<usize>; MAX_RANK] = [None; MAX_RANK];
    for (i, size) in first.shape().iter().enumerate() {
        sizes[i] = (i != axis).then_some(*size);
    }
    for array in arrays {
        check::shape(op, "each array", array, &sizes[..first.shape().len()])?;
        if array.dtype() != first.dtype() {
            let expected = first.dtype().name();
            return Err(ArrayError::DType { op, argument: "each array", expected, actual: array.dtype() });
        }
    }
    let mut joined: Vec<usize> = first.shape().to_vec();
    joined[axis] = arrays.iter().map(|array| array.shape()[axis]).sum();
    let shape = Shape::try_new(&joined).unwrap_or(*first.shape());
    let inputs = arrays.iter().map(|&array| array.clone());
    Ok(Array::lazy(first.stream(), shape, first.dtype(), Primitive::Concatenate { axis }, inputs))
}

/// `destination` with the entries `start ..` of its first axis replaced by `rows`, converted to its float format.
/// Written in place if nobody else holds the destination.
pub fn slice_update(destination: &Array, rows: &Array, start: usize) -> Result<Array, ArrayError> {
    let op = "slice_update";
    let shape = *destination.shape();
    check::floats(op, "destination", destination)?;
    check::floats(op, "rows", rows)?;
    let mut expected: [Option<usize>; MAX_RANK] = [None; MAX_RANK];
    for axis in 1..shape.len() {
        expected[axis] = Some(shape[axis]);
    }
    check::shape(op, "rows", rows, &expected[..shape.len()])?;
    let room = shape.first().copied().unwrap_or(0);
    check::value(op, "start + rows", start + rows.shape()[0], start + rows.shape()[0] <= room, || {
        format!("at most {room}")
    })?;
    let inputs = [destination.clone(), rows.clone()];
    Ok(Array::lazy(
        destination.stream(),
        shape,
        destination.dtype(),
        Primitive::SliceUpdate { start },
        inputs,
    ))
}
