//! Keys of an index: one pooled row for each complete block of tokens, and the raw rows of the block that is not.
//!
//! How rows are pooled is the indexer's business: it gets the raw rows of complete blocks and appends what it makes of them.

use ds4_array::{Array, DType, Stream, ops};

use super::{CacheError, PagedRows, PartVisitor, StateSource, take_part};
use crate::LayerError;

/// Pooled keys `[D]` of complete blocks, and the raw rows since the last one.
#[derive(Clone, Debug)]
pub struct IndexCache {
    /// One row for each complete block.
    pub pooled: PagedRows,
    raw: Option<Array>,
    block: usize,
    raw_width: usize,
    window: Option<Box<IndexWindow>>,
}

/// Raw rows before a window, and those that have entered since.
#[derive(Clone, Debug)]
struct IndexWindow {
    raw: Option<Array>,
    rows: Option<Array>,
}

impl IndexCache {
    /// An empty index over blocks of `block` tokens with keys of `width`, pooled from raw rows of `raw_width`.
    pub fn new(stream: &Stream, block: usize, width: usize, raw_width: usize) -> Self {
        Self {
            pooled: PagedRows::new(stream, &[width], DType::F32),
            raw: None,
            block,
            raw_width,
            window: None,
        }
    }

    /// Adds the raw rows `rows` [L, W]. Returns those of the blocks that are now complete, [B, block, W], for the caller to
    /// pool and append to [`pooled`](Self::pooled).
    pub fn push(&mut self, rows: &Array) -> Result<Option<Array>, LayerError> {
        if let Some(window) = &mut self.window {
            window.rows = Some(rows.clone());
        }
        let all = match &self.raw {
            Some(raw) => ops::concatenate(&[raw, rows], 0)?,
            None => rows.clone(),
        };
        let total = all.shape()[0];
        let blocks = total / self.block;
        let rest = total - blocks * self.block;
        self.raw =
            if rest == 0 { None } else { Some(ops::copy(&ops::slice_rows(&all, total - rest, rest)?)?) };
        if blocks == 0 {
            return Ok(None);
        }
        let complete = ops::slice_rows(&all, 0, blocks * self.block)?;
        Ok(Some(ops::reshape(&complete, [blocks, self.block, self.raw_width])?))
    }

    pub(super) fn visit_parts(&self, visit: &mut PartVisitor<'_>) {
        self.pooled.visit_parts("index", visit);
        self.raw.iter().for_each(|raw| visit(format_args!("index.raw"), raw));
    }

    pub(super) fn restore(&mut self, tokens: usize, source: &mut StateSource<'_>) -> Result<(), CacheError> {
        self.pooled.restore("index", tokens / self.block, source)?;
        let rest = tokens % self.block;
        self.raw = match rest {
            0 => None,
            _ => Some(take_part(source, "index.raw", [rest, self.raw_width].into(), DType::F32)?),
        };
        Ok(())
    }

    /// Goes back to the first `tokens` tokens, which must end with a block: raw rows of earlier ones are gone.
    pub(super) fn trim(&mut self, tokens: usize) -> Result<(), CacheError> {
        if !tokens.is_multiple_of(self.block) {
            let from = self.pooled.len() * self.block;
            return Err(CacheError::CannotTrim { kind: "index", from, to: tokens });
        }
        self.pooled.trim(tokens / self.block);
        self.raw = None;
        Ok(())
    }

    pub(super) fn begin_window(&mut self) {
        self.window = Some(Box::new(IndexWindow { raw: self.raw.clone(), rows: None }));
    }

    /// Goes to the state after the first `keep` rows of the window, `tokens` in all.
    pub(super) fn commit_window(&mut self, keep: usize, tokens: usize) -> Result<(), LayerError> {
        let Some(window) = self.window.take() else { return Ok(()) };
        self.pooled.trim(tokens / self.block);
        let kept = window.rows.map(|rows| ops::slice_rows(&rows, 0, keep)).transpose()?;
        let parts: Vec<&Array> =
            [&window.raw, &kept].into_iter().flatten().filter(|p| p.shape()[0] > 0).collect();
        let rest = tokens % self.block;
        self.raw = None;
        if rest > 0 && !parts.is_empty() {
            let all = ops::concatenate(&parts, 0)?;
            self.raw = Some(ops::copy(&ops::slice_rows(&all, all.shape()[0] - rest, rest)?)?);
        }
        Ok(())
    }
}
