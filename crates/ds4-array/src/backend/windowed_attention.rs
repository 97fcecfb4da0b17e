//! Attention over a window and entries.

use ds4_cpu_kernels::{self as kernels, Entries, WindowedAttentionArgs};

use crate::ArrayError;
use crate::data::Data;
use crate::primitive::WindowedSpec;

use super::attention::{dense_range, floats};
use super::call::Call;

pub(super) fn windowed_attention(call: &Call<'_>, spec: WindowedSpec) -> Result<Data, ArrayError> {
    let (q, sinks) = (call.dense(0)?, call.dense(1)?);
    let ids = if spec.selects { Some(call.dense(2)?) } else { None };
    let first = 2 + usize::from(spec.selects);
    let second = first + spec.window_pages;
    let (window, entries) = (dense_range(call, first..second)?, dense_range(call, second..call.len())?);
    let (window, pages) = (floats(call, first, &window), floats(call, second, &entries));
    let entries = spec.rate.map(|rate| Entries {
        pages: &pages,
        rate,
        selected: ids.as_ref().map(|ids| ids.as_slice()),
        per_row: if spec.selects { call.shape_of(2).width() } else { 0 },
    });
    let args = WindowedAttentionArgs {
        q: q.as_slice(),
        window: &window,
        window_start: spec.window_start,
        span: spec.span,
        entries,
        page_rows: call.shape_of(first)[0],
        first_position: spec.first_position,
        sinks: sinks.as_slice(),
        heads: call.shape()[1],
        d: call.shape()[2],
        scale: spec.scale,
    };
    call.produce(|out| kernels::windowed_attention(call.kernels(), &args, out))
}
