//! Entries that each stand for a run of tokens, and the raw rows that later entries still need.

use ds4_array::{Array, DType, Stream, ops};

use super::{CacheError, PagedRows, PartVisitor, StateSource, take_part};
use crate::LayerError;

/// Entries of complete runs of `rate` tokens, and the raw rows behind them.
///
/// Where runs overlap, an entry is made of its own run and the one before, so the rows of the last complete run are kept
/// besides those of the incomplete one.
#[derive(Clone, Debug)]
pub struct CompressorCache {
    /// One row for each complete run.
    pub entries: PagedRows,
    /// Rows from [`first_kept`](Self::first_kept) to the last one; `None` if there are none.
    raw: Option<Array>,
    tokens: usize,
    rate: usize,
    width: usize,
    overlaps: bool,
    window: Option<Box<CompressorWindow>>,
}

/// Raw rows before a window, and those that have entered since.
#[derive(Clone, Debug)]
struct CompressorWindow {
    raw: Option<Array>,
    tokens: usize,
    rows: Option<Array>,
}

/// Raw rows of the runs that an append completed.
#[derive(Clone, Debug)]
pub struct CompleteRuns {
    /// [R * rate, W], R runs.
    pub rows: Array,
    /// Whether the first of the runs is an earlier one, there for the overlap.
    pub has_previous: bool,
}

impl CompressorCache {
    /// An empty cache with entries of `entry` elements stored as `dtype`, and raw rows of `width`.
    pub fn new(
        stream: &Stream,
        rate: usize,
        entry: usize,
        width: usize,
        overlaps: bool,
        dtype: DType,
    ) -> Self {
        let entries = PagedRows::new(stream, &[entry], dtype);
        Self { entries, raw: None, tokens: 0, rate, width, overlaps, window: None }
    }

    /// Adds the raw rows [L, W]. Returns the runs that are now complete, for the caller to make entries of and append
    /// them to [`entries`](Self::entries).
    pub fn push(&mut self, rows: &Array) -> Result<Option<CompleteRuns>, LayerError> {
        if let Some(window) = &mut self.window {
            window.rows = Some(rows.clone());
        }
        let first = self.first_kept(self.tokens);
        let all = joined(self.raw.as_ref(), rows)?;
        let before = self.tokens / self.rate;
        self.tokens += rows.shape()[0];
        let complete = self.tokens / self.rate;
        self.keep_of(Some(&all), first)?;
        if complete == before {
            return Ok(None);
        }
        let rows = ops::slice_rows(&all, 0, complete * self.rate - first)?;
        Ok(Some(CompleteRuns { rows, has_previous: first < before * self.rate }))
    }

    /// The first token whose raw row is needed after `tokens` tokens.
    fn first_kept(&self, tokens: usize) -> usize {
        (tokens / self.rate).saturating_sub(usize::from(self.overlaps)) * self.rate
    }

    /// Sets the raw rows for the present number of tokens, from rows that begin with token `first`.
    fn keep_of(&mut self, rows: Option<&Array>, first: usize) -> Result<(), LayerError> {
        let kept = self.first_kept(self.tokens);
        self.raw = match rows {
            // A copy: a view would keep the whole chunk alive.
            Some(rows) if kept < self.tokens => {
                Some(ops::copy(&ops::slice_rows(rows, kept - first, self.tokens - kept)?)?)
            }
            _ => None,
        };
        Ok(())
    }

    pub(super) fn visit_parts(&self, name: &str, visit: &mut PartVisitor<'_>) {
        self.entries.visit_parts(name, visit);
        self.raw.iter().for_each(|raw| visit(format_args!("{name}.raw"), raw));
    }

    pub(super) fn restore(
        &mut self,
        name: &str,
        tokens: usize,
        source: &mut StateSource<'_>,
    ) -> Result<(), CacheError> {
        self.entries.restore(name, tokens / self.rate, source)?;
        self.tokens = tokens;
        self.window = None;
        let rows = tokens - self.first_kept(tokens);
        self.raw = match rows {
            0 => None,
            _ => Some(take_part(source, &format!("{name}.raw"), [rows, self.width].into(), DType::F32)?),
        };
        Ok(())
    }

    /// Goes back to the first `tokens` tokens, if their raw rows are still there.
    pub(super) fn trim(&mut self, tokens: usize) -> Result<(), CacheError> {
        let (first, kept) = (self.first_kept(self.tokens), self.first_kept(tokens));
        let refused = CacheError::CannotTrim { kind: "compressor", from: self.tokens, to: tokens };
        if kept < tokens && kept < first {
            return Err(refused);
        }
        let raw = self.raw.take();
        self.tokens = self.tokens.min(tokens);
        self.keep_of(raw.as_ref(), first).map_err(|_| refused)?;
        self.entries.trim(tokens / self.rate);
        Ok(())
    }

    pub(super) fn begin_window(&mut self) {
        let window = CompressorWindow { raw: self.raw.clone(), tokens: self.tokens, rows: None };
        self.window = Some(Box::new(window));
    }

    /// Goes to the state after the first `keep` rows of the window.
    pub(super) fn commit_window(&mut self, keep: usize) -> Result<(), LayerError> {
        let Some(window) = self.window.take() else { return Ok(()) };
        let first = self.first_kept(window.tokens);
        let all = match window.rows {
            Some(rows) if keep > 0 => Some(joined(window.raw.as_ref(), &ops::slice_rows(&rows, 0, keep)?)?),
            _ => window.raw,
        };
        self.tokens = window.tokens + keep;
        self.entries.trim(self.tokens / self.rate);
        self.keep_of(all.as_ref(), first)
    }
}

fn joined(before: Option<&Array>, rows: &Array) -> Result<Array, LayerError> {
    Ok(match before {
        Some(before) => ops::concatenate(&[before, rows], 0)?,
        None => rows.clone(),
    })
}
