//! Reductions, softmax and selection over the last axis.

use ds4_dtype::DType;

use crate::primitive::{Primitive, ReduceOp};
use crate::{Array, ArrayError, Shape};

use super::check;

/// Sum over the last axis, which stays with size 1.
pub fn sum(x: &Array) -> Result<Array, ArrayError> {
    reduce("sum", ReduceOp::Sum, x)
}

/// Mean over the last axis, which stays with size 1.
pub fn mean(x: &Array) -> Result<Array, ArrayError> {
    reduce("mean", ReduceOp::Mean, x)
}

/// Largest element of the last axis, which stays with size 1.
pub fn max(x: &Array) -> Result<Array, ArrayError> {
    reduce("max", ReduceOp::Max, x)
}

fn reduce(op: &'static str, kind: ReduceOp, x: &Array) -> Result<Array, ArrayError> {
    check::f32(op, "x", x)?;
    let shape = x.shape().with_width(1);
    Ok(Array::lazy(x.stream(), shape, DType::F32, Primitive::Reduce(kind), [x.clone()]))
}

/// Mean over the middle axis: [A, B, C] to [A, C].
pub fn mean_middle(x: &Array) -> Result<Array, ArrayError> {
    check::f32("mean_middle", "x", x)?;
    check::shape("mean_middle", "x", x, &[None, None, None])?;
    let shape = Shape::from([x.shape()[0], x.shape()[2]]);
    Ok(Array::lazy(x.stream(), shape, DType::F32, Primitive::MeanMiddle, [x.clone()]))
}

/// Softmax over the last axis.
pub fn softmax(x: &Array) -> Result<Array, ArrayError> {
    check::f32("softmax", "x", x)?;
    Ok(Array::lazy(x.stream(), *x.shape(), x.dtype(), Primitive::Softmax, [x.clone()]))
}

/// Ids of the `k` largest elements of the last axis, largest first: [.., C] to [.., k] u32. Among equals the lower id
/// comes first, which is the rule of the golden masters; NaN counts as smallest.
pub fn top_k(x: &Array, k: usize) -> Result<Array, ArrayError> {
    check::f32("top_k", "x", x)?;
    let width = x.shape().width();
    check::value("top_k", "k", k, (1..=width).contains(&k), || format!("1 to {width}"))?;
    Ok(Array::lazy(x.stream(), x.shape().with_width(k), DType::U32, Primitive::TopK { k }, [x.clone()]))
}

/// `scores` [L, E] with minus infinity for the experts outside the `keep` best of `groups` groups of neighbours. A group
/// counts as much as its two best experts together; of equal groups the lower one wins.
pub fn keep_best_groups(scores: &Array, groups: usize, keep: usize) -> Result<Array, ArrayError> {
    let op = "keep_best_groups";
    check::f32(op, "scores", scores)?;
    let experts = scores.shape().width();
    let fits = groups > 0 && experts.is_multiple_of(groups) && experts / groups >= 2;
    check::value(op, "groups", groups, fits, || format!("groups of at least 2 of {experts} experts"))?;
    check::value(op, "keep", keep, (1..=groups).contains(&keep), || format!("1 to {groups}"))?;
    let primitive = Primitive::KeepBestGroups { groups, keep };
    Ok(Array::lazy(scores.stream(), *scores.shape(), scores.dtype(), primitive, [scores.clone()]))
}

/// For each row, the elements of `values` [R, C] at `ids` [R, K].
pub fn take_along(values: &Array, ids: &Array) -> Result<Array, ArrayError> {
    check::f32("take_along", "values", values)?;
    check::ids("take_along", "ids", ids)?;
    check::shape("take_along", "values", values, &[None, None])?;
    check::shape("take_along", "ids", ids, &[Some(values.shape()[0]), None])?;
    let inputs = [values.clone(), ids.clone()];
    Ok(Array::lazy(values.stream(), *ids.shape(), values.dtype(), Primitive::TakeAlong, inputs))
}
