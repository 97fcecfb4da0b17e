//! Keys of an index: one pooled row for each complete block of tokens, and the raw rows of the block that is not.

use ds4_array::{Array, DType, Stream, ops};

use super::{CacheError, NamedArrays, PagedRows, StateSource, take_part};
use crate::LayerError;

/// Pooled keys [D] of complete blocks, and the raw rows since the last one.
#[derive(Clone, Debug)]
pub struct IndexCache {
    /// One row for each complete block.
    pub pooled: PagedRows,
    raw: Option<Array>,
    block: usize,
    width: usize,
}

impl IndexCache {
    /// An empty index over blocks of `block` tokens with keys of `width`.
    pub fn new(stream: &Stream, block: usize, width: usize) -> Self {
        Self { pooled: PagedRows::new(stream, &[width], DType::F32), raw: None, block, width }
    }

    /// Adds the raw keys `rows` [L, D]. Returns the mean of each block that is now complete, [B, D], for the caller to
    /// finish and append to [`pooled`](Self::pooled).
    pub fn push(&mut self, rows: &Array) -> Result<Option<Array>, LayerError> {
        let all = match &self.raw {
            Some(raw) => ops::concatenate(&[raw, rows], 0)?,
            None => rows.clone(),
        };
        let total = all.shape()[0];
        let blocks = total / self.block;
        let rest = total - blocks * self.block;
        self.raw = if rest == 0 { None } else { Some(ops::copy(&ops::slice_rows(&all, total - rest, rest)?)?) };
        if blocks == 0 {
            return Ok(None);
        }
        let complete = ops::slice_rows(&all, 0, blocks * self.block)?;
        Ok(Some(ops::mean_middle(&ops::reshape(&complete, [blocks, self.block, self.width])?)?))
    }

    pub(super) fn state_parts(&self) -> NamedArrays {
        let mut parts = self.pooled.state_parts("index");
        parts.extend(self.raw.iter().map(|raw| ("index.raw".to_owned(), raw.clone())));
        parts
    }

    pub(super) fn restore(&mut self, tokens: usize, source: &mut StateSource<'_>) -> Result<(), CacheError> {
        self.pooled.restore("index", tokens / self.block, source)?;
        let rest = tokens % self.block;
        self.raw = match rest {
            0 => None,
            _ => Some(take_part(source, "index.raw", [rest, self.width].into(), DType::F32)?),
        };
        Ok(())
    }

    /// Goes back to the first `tokens` tokens, which must end with a block: raw rows of earlier ones are gone.
    pub(super) fn trim(&mut self, tokens: usize) -> Result<(), CacheError> {
        if tokens % self.block != 0 {
            let from = self.pooled.len() * self.block;
            return Err(CacheError::CannotTrim { kind: "index", from, to: tokens });
        }
        self.pooled.trim(tokens / self.block);
        self.raw = None;
        Ok(())
    }
}
