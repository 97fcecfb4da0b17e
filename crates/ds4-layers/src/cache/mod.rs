//! What a sequence leaves behind in each layer, and the one contract through which it is saved and restored.
//!
//! A cache kind can give out its state as named arrays, take them back, say how many bytes they hold, and be cloned.
//! A clone is a snapshot: arrays are shared, and whatever is appended later is written to new or private storage.
//! Kinds that only grow can also be trimmed; recurrent ones cannot go back and say so.

mod attention;
mod compressor;
mod delta;
mod index;
mod latent;
mod paged_rows;
mod row_tail;
mod token_tail;
mod windowed;

use std::fmt;

use ds4_array::{Array, DType, Shape};

use crate::LayerError;

pub use attention::AttentionCache;
pub use compressor::{CompleteRuns, CompressorCache};
pub use delta::{DeltaCache, DeltaRows};
pub use index::IndexCache;
pub use latent::LatentCache;
pub use paged_rows::PagedRows;
pub use row_tail::RowTail;
pub use token_tail::TokenTail;
pub use windowed::WindowedCache;

/// Named parts of a state. Names are unique within a layer.
pub type NamedArrays = Vec<(String, Array)>;

/// Who is shown the parts of a state. Names are only written out where they are wanted.
type PartVisitor<'a> = dyn FnMut(fmt::Arguments<'_>, &Array) + 'a;

/// Where a cache takes its parts from when it is restored.
pub type StateSource<'a> = dyn FnMut(&str) -> Option<Array> + 'a;

/// Why a state cannot be taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// A recurrent kind was asked to go back.
    #[error("a {kind} cache cannot be trimmed from {from} to {to} tokens: restore a snapshot")]
    CannotTrim {
        /// Cache kind.
        kind: &'static str,
        /// Tokens it holds.
        from: usize,
        /// Tokens asked for.
        to: usize,
    },
    /// A part is missing in a saved state.
    #[error("the saved state has no part {name:?}")]
    MissingPart {
        /// Name of the part.
        name: String,
    },
    /// A part does not fit this model.
    #[error("part {name:?} of the saved state must be {expected:?} {expected_dtype}, got {actual:?} {dtype}")]
    WrongPart {
        /// Name of the part.
        name: String,
        /// Shape of this model's part.
        expected: Shape,
        /// Its element type.
        expected_dtype: DType,
        /// Shape in the state.
        actual: Shape,
        /// Element type in the state.
        dtype: DType,
    },
}

/// The cache of one layer: one of the kinds.
#[derive(Clone, Debug)]
pub enum LayerCache {
    /// Of a gated delta net, with or without a per-layer embedding.
    Delta(DeltaCache),
    /// Of an attention layer with its index.
    Attention(AttentionCache),
    /// Of an attention layer with a sliding window, with or without compressed entries.
    Windowed(WindowedCache),
    /// Of an attention layer over latents.
    Latent(LatentCache),
}

impl LayerCache {
    /// Name of the kind, for messages and checkpoints.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Delta(_) => "delta",
            Self::Attention(_) => "attention",
            Self::Windowed(_) => "windowed",
            Self::Latent(_) => "latent",
        }
    }

    /// Shows its parts.
    fn visit_parts(&self, visit: &mut PartVisitor<'_>) {
        match self {
            Self::Delta(cache) => cache.visit_parts(visit),
            Self::Attention(cache) => cache.visit_parts(visit),
            Self::Windowed(cache) => cache.visit_parts(visit),
            Self::Latent(cache) => cache.visit_parts(visit),
        }
    }

    /// Replaces its state by the parts of one that held `tokens` tokens.
    pub fn restore(&mut self, tokens: usize, source: &mut StateSource<'_>) -> Result<(), CacheError> {
        match self {
            Self::Delta(cache) => cache.restore(source),
            Self::Attention(cache) => cache.restore(tokens, source),
            Self::Windowed(cache) => cache.restore(tokens, source),
            Self::Latent(cache) => cache.restore(tokens, source),
        }
    }

    fn begin_window(&mut self) {
        match self {
            Self::Delta(cache) => cache.begin_window(),
            Self::Attention(cache) => cache.begin_window(),
            Self::Windowed(cache) => cache.begin_window(),
            Self::Latent(cache) => cache.begin_window(),
        }
    }

    fn commit_window(&mut self, keep: usize, tokens: usize) -> Result<(), LayerError> {
        match self {
            Self::Delta(cache) => cache.commit_window(keep),
            Self::Attention(cache) => cache.commit_window(keep, tokens),
            Self::Windowed(cache) => cache.commit_window(keep, tokens),
            Self::Latent(cache) => cache.commit_window(keep, tokens),
        }
    }

    /// Goes back to the first `tokens` of the `held` tokens.
    pub fn trim(&mut self, held: usize, tokens: usize) -> Result<(), CacheError> {
        match self {
            Self::Delta(_) => Err(CacheError::CannotTrim { kind: "delta", from: held, to: tokens }),
            Self::Attention(cache) => cache.trim(tokens),
            Self::Windowed(cache) => cache.trim(tokens),
            Self::Latent(cache) => cache.trim(tokens),
        }
    }

    /// The cache of a delta net, if it is one.
    pub fn as_delta(&mut self) -> Option<&mut DeltaCache> {
        if let Self::Delta(cache) = self { Some(cache) } else { None }
    }

    /// The cache of an attention layer with its index, if it is one.
    pub fn as_attention(&mut self) -> Option<&mut AttentionCache> {
        if let Self::Attention(cache) = self { Some(cache) } else { None }
    }

    /// The cache of an attention layer with a sliding window, if it is one.
    pub fn as_windowed(&mut self) -> Option<&mut WindowedCache> {
        if let Self::Windowed(cache) = self { Some(cache) } else { None }
    }

    /// The cache of an attention layer over latents, if it is one.
    pub fn as_latent(&mut self) -> Option<&mut LatentCache> {
        if let Self::Latent(cache) = self { Some(cache) } else { None }
    }
}

/// The caches of all layers of one sequence.
#[derive(Clone, Debug)]
pub struct SequenceCache {
    /// One for each layer, in order.
    pub layers: Vec<LayerCache>,
    tokens: usize,
    /// Tokens before the open window.
    window: Option<usize>,
}

impl SequenceCache {
    /// Caches without any tokens.
    pub fn new(layers: Vec<LayerCache>) -> Self {
        Self { layers, tokens: 0, window: None }
    }

    /// Tokens that the state stands for.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Notes that a forward pass has appended this many tokens to every layer.
    pub fn advance(&mut self, tokens: usize) {
        self.tokens += tokens;
    }

    /// Opens a window: the rows of the next pass can be taken back from any row on. One pass a window, or any number of them
    /// if none of their rows is kept.
    pub fn begin_window(&mut self) {
        self.layers.iter_mut().for_each(LayerCache::begin_window);
        self.window = Some(self.tokens);
    }

    /// Closes the window and keeps the first `keep` of its rows: the state is what it would be had only these been run,
    /// bit for bit. Context is not run again.
    pub fn commit_window(&mut self, keep: usize) -> Result<(), LayerError> {
        let Some(before) = self.window.take() else { return Ok(()) };
        let tokens = before + keep;
        self.layers.iter_mut().try_for_each(|cache| cache.commit_window(keep, tokens))?;
        self.tokens = tokens;
        Ok(())
    }

    /// All parts of all layers, named `LAYER.PART`.
    pub fn state(&self) -> NamedArrays {
        let mut parts = Vec::new();
        for (layer, cache) in self.layers.iter().enumerate() {
            cache.visit_parts(&mut |name, array| parts.push((format!("{layer}.{name}"), array.clone())));
        }
        parts
    }

    /// Replaces the state by one of `tokens` tokens. After an error the caches are unusable and must be dropped.
    pub fn restore(&mut self, tokens: usize, source: &mut StateSource<'_>) -> Result<(), CacheError> {
        for (layer, cache) in self.layers.iter_mut().enumerate() {
            cache.restore(tokens, &mut |name| source(&format!("{layer}.{name}")))?;
        }
        self.tokens = tokens;
        Ok(())
    }

    /// Goes back to the first `tokens` tokens, if every layer can; else nothing changes.
    pub fn trim(&mut self, tokens: usize) -> Result<(), CacheError> {
        let mut trimmed = self.layers.clone();
        trimmed.iter_mut().try_for_each(|cache| cache.trim(self.tokens, tokens))?;
        self.layers = trimmed;
        self.tokens = tokens;
        Ok(())
    }

    /// The arrays that have yet to be evaluated for the state to be there.
    pub fn pending(&self) -> Vec<Array> {
        let mut pending = Vec::new();
        self.visit_arrays(&mut |array| {
            if !array.is_evaluated() {
                pending.push(array.clone());
            }
        });
        pending
    }

    fn visit_arrays(&self, visit: &mut dyn FnMut(&Array)) {
        self.layers.iter().for_each(|layer| layer.visit_parts(&mut |_, array| visit(array)));
    }

    /// Bytes that the state holds; parts that share storage with others of this state count once.
    pub fn bytes(&self) -> usize {
        let mut storages: Vec<(usize, usize)> = Vec::new();
        self.visit_arrays(&mut |array| storages.extend(array.storage_key()));
        storages.sort_unstable();
        storages.dedup();
        storages.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Takes a part and checks that it is what this model expects.
fn take_part(
    source: &mut StateSource<'_>,
    name: &str,
    expected: Shape,
    expected_dtype: DType,
) -> Result<Array, CacheError> {
    let array = source(name).ok_or_else(|| CacheError::MissingPart { name: name.to_owned() })?;
    if *array.shape() == expected && array.dtype() == expected_dtype {
        return Ok(array);
    }
    Err(CacheError::WrongPart {
        name: name.to_owned(),
        expected,
        expected_dtype,
        actual: *array.shape(),
        dtype: array.dtype(),
    })
}
