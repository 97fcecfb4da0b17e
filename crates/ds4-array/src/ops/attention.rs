//! Causal attention over paged keys and values, dense or over selected blocks, and the selection itself.
//!
//! Keys and values come in pages: arrays [R, Hkv, D] of R consecutive tokens each. The last page may be partly
//! filled; how far is known from the position.

use ds4_dtype::DType;

use crate::primitive::{AttentionSpec, IndexSpec, Primitive};
use crate::{Array, ArrayError, Shape};

use super::check;

/// Which blocks of keys each query sees besides the tail, the tokens of its last, incomplete block.
#[derive(Clone, Copy, Debug)]
pub struct BlockSelection<'a> {
    /// [L, S] u32: block numbers in ascending order, then `u32::MAX` in unused places.
    pub ids: &'a Array,
    /// Tokens in a block.
    pub block: usize,
}

/// softmax(q k^T * scale) v, causal: the query of row i stands at `first_position + i`.
///
/// `q` [L, H, D], key pages [R, Hkv, D], value pages [R, Hkv, Dv], result [L, H, Dv]. Each key head serves H / Hkv
/// consecutive query heads. Softmax runs online over keys in ascending order.
pub fn attention(
    q: &Array,
    keys: &[Array],
    values: &[Array],
    selection: Option<BlockSelection<'_>>,
    first_position: usize,
    scale: f32,
) -> Result<Array, ArrayError> {
    let op = "attention";
    check::f32(op, "q", q)?;
    check::shape(op, "q", q, &[None, None, None])?;
    let [tokens, heads, dim] = [q.shape()[0], q.shape()[1], q.shape()[2]];
    let page = pages(op, "keys", keys, &[None, None, Some(dim)], first_position + tokens)?;
    let key_heads = page[1];
    check::value(op, "query heads", heads, key_heads > 0 && heads % key_heads == 0, || {
        format!("a multiple of {key_heads}")
    })?;
    let value =
        pages(op, "values", values, &[Some(page[0]), Some(key_heads), None], first_position + tokens)?;
    check::value(op, "value pages", values.len(), values.len() == keys.len(), || keys.len().to_string())?;
    if let Some(BlockSelection { ids, block }) = selection {
        check::ids(op, "selection", ids)?;
        check::shape(op, "selection", ids, &[Some(tokens), None])?;
        check::value(op, "block", block, block > 0, || "at least 1".to_owned())?;
    }
    let spec = AttentionSpec { first_position, scale, block: selection.map(|selection| selection.block) };
    let ids = selection.map(|selection| selection.ids);
    let inputs = [Some(q), ids].into_iter().flatten().chain(keys).chain(values).cloned();
    let shape = Shape::from([tokens, heads, value[2]]);
    Ok(Array::lazy(q.stream(), shape, DType::F32, Primitive::Attention(spec), inputs))
}

/// For each query the `top` complete blocks of highest score, ascending, padded with `u32::MAX`: [L, top] u32.
///
/// The score of block j is scale * sum over heads of w_h * relu(q_h . k_j); without `weights` [L, H] all w are 1. Only blocks that end at or before the query
/// count. Among equal scores the lower block wins: scores of exactly 0 are common, and this is the golden master's
/// rule. `q` [L, H, D]; key pages [R, D], one row a block.
pub fn index_select(
    q: &Array,
    weights: Option<&Array>,
    keys: &[Array],
    first_position: usize,
    block: usize,
    top: usize,
    scale: f32,
) -> Result<Array, ArrayError> {
    let op = "index_select";
    check::f32(op, "q", q)?;
    check::shape(op, "q", q, &[None, None, None])?;
    check::value(op, "block", block, block > 0, || "at least 1".to_owned())?;
    check::value(op, "top", top, top > 0, || "at least 1".to_owned())?;
    let tokens = q.shape()[0];
    pages(op, "keys", keys, &[None, Some(q.shape()[2])], (first_position + tokens) / block)?;
    if let Some(weights) = weights {
        check::f32(op, "weights", weights)?;
        check::shape(op, "weights", weights, &[Some(tokens), Some(q.shape()[1])])?;
    }
    let spec = IndexSpec { weighted: weights.is_some(), first_position, block, scale };
    let inputs = std::iter::once(q).chain(weights).chain(keys).cloned();
    Ok(Array::lazy(q.stream(), Shape::from([tokens, top]), DType::U32, Primitive::IndexSelect(spec), inputs))
}

/// Checks that all pages are alike and hold at least `rows` rows; returns the shape of one.
pub(super) fn pages(
    op: &'static str,
    argument: &'static str,
    pages: &[Array],
    expected: &[Option<usize>],
    rows: usize,
) -> Result<Shape, ArrayError> {
    let Some(first) = pages.first() else {
        check::value(op, argument, 0, rows == 0, || format!("pages for {rows} rows"))?;
        return Ok(Shape::try_new(&[0; 3][..expected.len()]).unwrap_or(Shape::from([])));
    };
    check::shape(op, argument, first, expected)?;
    for page in pages {
        check::floats(op, argument, page)?;
        if page.shape() != first.shape() || page.dtype() != first.dtype() {
            return Err(check::wrong_shape(
                op,
                argument,
                format!("{:?} as the first page", first.shape()),
                *page.shape(),
            ));
        }
    }
    let held = pages.len() * first.shape()[0];
    check::value(op, argument, held, held >= rows, || format!("at least {rows} rows"))?;
    Ok(*first.shape())
}
