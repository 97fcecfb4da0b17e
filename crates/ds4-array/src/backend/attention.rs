//! Attention over pages, and the selection of blocks.

use ds4_cpu_kernels::{self as kernels, AttentionArgs, BlockSelection, IndexSelectArgs};
use ds4_dtype::Floats;

use crate::ArrayError;
use crate::data::Data;
use crate::primitive::{AttentionSpec, IndexSpec};

use super::call::{Call, Dense};

pub(super) fn attention(call: &Call<'_>, spec: AttentionSpec) -> Result<Data, ArrayError> {
    let q = call.dense(0)?;
    let first_page = 1 + usize::from(spec.block.is_some());
    let pages = (call.len() - first_page) / 2;
    let keys = dense_range(call, first_page..first_page + pages)?;
    let values = dense_range(call, first_page + pages..call.len())?;
    let ids = if spec.block.is_some() { Some(call.dense(1)?) } else { None };
    let selection = spec.block.zip(ids.as_ref()).map(|(block, ids)| BlockSelection {
        block,
        per_row: call.shape_of(1).width(),
        ids: ids.as_slice(),
    });
    let (keys, values) = (floats(call, first_page, &keys), floats(call, first_page + pages, &values));
    let args = AttentionArgs {
        q: q.as_slice(),
        keys: &keys,
        values: &values,
        page_rows: call.shape_of(first_page)[0],
        first_position: spec.first_position,
        heads: call.shape()[1],
        kv_heads: call.shape_of(first_page)[1],
        d: call.shape_of(0)[2],
        dv: call.shape()[2],
        scale: spec.scale,
        selection,
    };
    call.produce(|out| kernels::attention(call.kernels(), &args, out))
}

pub(super) fn index_select(call: &Call<'_>, spec: IndexSpec) -> Result<Data, ArrayError> {
    let q = call.dense(0)?;
    let weights = if spec.weighted { Some(call.dense(1)?) } else { None };
    let first_page = 1 + usize::from(spec.weighted);
    let pages = dense_range(call, first_page..call.len())?;
    let keys = floats(call, first_page, &pages);
    let shape = call.shape_of(0);
    let args = IndexSelectArgs {
        q: q.as_slice(),
        weights: weights.as_ref().map(Dense::as_slice),
        keys: &keys,
        page_rows: if pages.is_empty() { 1 } else { call.shape_of(first_page)[0] },
        first_position: spec.first_position,
        heads: shape[1],
        d: shape[2],
        block: spec.block,
        top: call.shape()[1],
        scale: spec.scale,
    };
    call.produce(|out| kernels::index_select(call.kernels(), &args, out))
}

pub(super) fn dense_range<'a>(
    call: &'a Call<'_>,
    inputs: std::ops::Range<usize>,
) -> Result<Vec<Dense<'a>>, ArrayError> {
    inputs.map(|input| call.dense(input)).collect()
}

pub(super) fn floats<'d>(call: &Call<'_>, first: usize, pages: &'d [Dense<'_>]) -> Vec<Floats<'d>> {
    pages.iter().enumerate().map(|(page, dense)| call.floats(first + page, dense)).collect()
}
