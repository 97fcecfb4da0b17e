//! Bookkeeping of a mixture of experts: bring tokens to their experts and the results back.

use ds4_dtype::DType;

use crate::primitive::Primitive;
use crate::{Array, ArrayError, Shape};

use super::check;

/// (token, expert) pairs sorted by expert, in the order of tokens within each.
#[derive(Clone, Debug)]
pub struct ExpertOrder {
    /// [L * K] u32: the token of each pair.
    pub rows: Array,
    /// [E + 1] u32: where each expert's pairs begin, and the end.
    pub offsets: Array,
    /// [L * K] u32: where the pair of token l and slot s went, at l * K + s.
    pub position: Array,
}

/// Sorts the choices `ids` [L, K] of each token by expert.
pub fn sort_by_expert(ids: &Array, experts: usize) -> Result<ExpertOrder, ArrayError> {
    let op = "sort_by_expert";
    check::ids(op, "ids", ids)?;
    check::shape(op, "ids", ids, &[None, None])?;
    check::value(op, "experts", experts, experts > 0, || "at least 1".to_owned())?;
    let pairs = Shape::from([ids.shape().elements()]);
    let primitive = Primitive::SortByExpert { experts };
    let rows = Array::lazy(ids.stream(), pairs, DType::U32, primitive, [ids.clone()]);
    let offsets = rows.further(1, Shape::from([experts + 1]), DType::U32);
    let position = rows.further(2, pairs, DType::U32);
    Ok(ExpertOrder { rows, offsets, position })
}

/// For each token the sum over its slots of weight * the pair's row of `y` [P, N]; weights [L, K], result [L, N].
/// Slots are added in their order.
pub fn combine_experts(y: &Array, order: &ExpertOrder, weights: &Array) -> Result<Array, ArrayError> {
    let op = "combine_experts";
    check::f32(op, "y", y)?;
    check::f32(op, "weights", weights)?;
    check::shape(op, "weights", weights, &[None, None])?;
    check::shape(op, "position", &order.position, &[Some(weights.shape().elements())])?;
    check::shape(op, "y", y, &[Some(weights.shape().elements()), None])?;
    let shape = Shape::from([weights.shape()[0], y.shape()[1]]);
    let inputs = [y.clone(), order.position.clone(), weights.clone()];
    Ok(Array::lazy(y.stream(), shape, DType::F32, Primitive::CombineExperts, inputs))
}
