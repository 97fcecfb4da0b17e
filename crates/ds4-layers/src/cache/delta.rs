//! State of a gated delta net: the tail of its convolution, its matrices, and what a per-layer embedding keeps.

use ds4_array::{Array, DType, Stream, ops};

use super::{CacheError, NamedArrays, RowTail, StateSource, TokenTail, take_part};

/// A recurrent state: it stands for all tokens so far and cannot go back.
#[derive(Clone, Debug)]
pub struct DeltaCache {
    /// Last inputs of the convolution, [K - 1, C].
    pub conv: RowTail,
    /// The matrices, [Hv, Dk, Dv], always float32.
    pub state: Array,
    /// For a layer with a per-layer embedding: tail of its convolution, and the last tokens.
    pub embedding: Option<(RowTail, TokenTail)>,
}

impl DeltaCache {
    /// The state before the first token.
    pub fn new(
        stream: &Stream,
        conv: RowTail,
        matrices: [usize; 3],
        embedding: Option<(RowTail, TokenTail)>,
    ) -> Self {
        Self { conv, state: ops::fill(stream, matrices, DType::F32, 0.0), embedding }
    }

    pub(super) fn state_parts(&self) -> NamedArrays {
        let mut parts = self.conv.state_parts("conv");
        parts.push(("state".to_owned(), self.state.clone()));
        if let Some((conv, tokens)) = &self.embedding {
            parts.extend(conv.state_parts("embedding.conv"));
            parts.extend(tokens.state_parts("embedding.tokens"));
        }
        parts
    }

    pub(super) fn restore(&mut self, source: &mut StateSource<'_>) -> Result<(), CacheError> {
        self.conv.restore("conv", source)?;
        self.state = take_part(source, "state", *self.state.shape(), DType::F32)?;
        if let Some((conv, tokens)) = &mut self.embedding {
            conv.restore("embedding.conv", source)?;
            tokens.restore("embedding.tokens", source)?;
        }
        Ok(())
    }
}
