//! Attention over a sliding window and over entries that stand for runs of earlier tokens.

use ds4_dtype::DType;

use crate::primitive::{Primitive, WindowedSpec};
use crate::{Array, ArrayError};

use super::attention::pages;
use super::check;

/// The tokens that queries see one by one.
#[derive(Clone, Copy, Debug)]
pub struct TokenWindow<'a> {
    /// Pages [R, D], a row for each token.
    pub pages: &'a [Array],
    /// Position of the first row.
    pub start: usize,
    /// Tokens that a query sees, its own included.
    pub span: usize,
}

/// Entries that stand for runs of tokens.
#[derive(Clone, Copy, Debug)]
pub struct CompressedEntries<'a> {
    /// Pages [R, D], as many rows a page as the window's.
    pub pages: &'a [Array],
    /// Tokens of a run: a query at position p sees the entries below (p + 1) / rate.
    pub rate: usize,
    /// The entries that each query looks at, if not all: [L, S] u32 ascending, then `u32::MAX` in unused places.
    pub selected: Option<&'a Array>,
}

/// softmax(q k^T * scale) k, where the query of row i stands at `first_position + i` and k are the keys of the last
/// `span` tokens up to its own, then entries. All heads share the keys, which are their own values.
///
/// `q` [L, H, D], result [L, H, D]. `sinks` \[H\] are scores that take part in the softmax and have no value.
pub fn windowed_attention(
    q: &Array,
    window: TokenWindow<'_>,
    entries: Option<CompressedEntries<'_>>,
    sinks: &Array,
    first_position: usize,
    scale: f32,
) -> Result<Array, ArrayError> {
    let op = "windowed_attention";
    check::f32(op, "q", q)?;
    check::f32(op, "sinks", sinks)?;
    check::shape(op, "q", q, &[None, None, None])?;
    let [tokens, heads, dim] = [q.shape()[0], q.shape()[1], q.shape()[2]];
    check::shape(op, "sinks", sinks, &[Some(heads)])?;
    check::value(op, "span", window.span, window.span > 0, || "at least 1".to_owned())?;
    let first_seen = (first_position + 1).saturating_sub(window.span);
    check::value(op, "window start", window.start, window.start <= first_seen, || {
        format!("at most {first_seen}")
    })?;
    let rows = first_position + tokens - window.start;
    let page = pages(op, "window", window.pages, &[None, Some(dim)], rows)?;
    let mut inputs = vec![q.clone(), sinks.clone()];
    if let Some(entries) = entries {
        check::value(op, "rate", entries.rate, entries.rate > 0, || "at least 1".to_owned())?;
        let visible = (first_position + tokens) / entries.rate;
        let expected = &[Some(page[0]), Some(dim)];
        if !entries.pages.is_empty() || visible > 0 {
            pages(op, "entries", entries.pages, expected, visible)?;
        }
        if let Some(ids) = entries.selected {
            check::ids(op, "selected", ids)?;
            check::shape(op, "selected", ids, &[Some(tokens), None])?;
            inputs.push(ids.clone());
        }
    }
    let spec = WindowedSpec {
        first_position,
        window_start: window.start,
        span: window.span,
        window_pages: window.pages.len(),
        rate: entries.map(|entries| entries.rate),
        selects: entries.is_some_and(|entries| entries.selected.is_some()),
        scale,
    };
    inputs.extend(window.pages.iter().cloned());
    inputs.extend(entries.iter().flat_map(|entries| entries.pages).cloned());
    Ok(Array::lazy(q.stream(), *q.shape(), DType::F32, Primitive::WindowedAttention(spec), inputs))
}
