//! State of a gated delta net: the tail of its convolution, its matrices, and what a per-layer embedding keeps.

use ds4_array::{Array, DType, Stream, ops};
use smallvec::SmallVec;

use super::{CacheError, PartVisitor, RowTail, StateSource, TokenTail, take_part};
use crate::{LayerError, Segment};

/// A recurrent state: it stands for all tokens so far and cannot go back.
#[derive(Clone, Debug)]
pub struct DeltaCache {
    /// Last inputs of the convolution, [K - 1, C].
    pub conv: RowTail,
    /// The matrices, [Hv, Dk, Dv], always float32.
    pub state: Array,
    /// For a layer with a per-layer embedding: tail of its convolution, and the last tokens.
    pub embedding: Option<(RowTail, TokenTail)>,
    window: Option<Box<DeltaWindow>>,
}

/// What the convolution and the recurrence took in during one pass.
#[derive(Clone, Debug)]
pub struct DeltaRows {
    /// Inputs of the convolution, [L, C].
    pub qkv: Array,
    /// Inputs of [`ops::gated_delta`]: q, k, v, logarithm of the decay, beta.
    pub recurrence: [Array; 5],
}

impl DeltaRows {
    /// The rows of one sequence, if these are those of a batch.
    fn of(&self, segment: &Segment) -> Result<Self, LayerError> {
        self.map(|array| segment.rows_of(array))
    }

    fn first(&self, rows: usize) -> Result<Self, LayerError> {
        self.map(|array| Ok(ops::slice_rows(array, 0, rows)?))
    }

    fn map(&self, rows: impl Fn(&Array) -> Result<Array, LayerError>) -> Result<Self, LayerError> {
        let [q, k, v, log_decay, beta] = &self.recurrence;
        let recurrence = [rows(q)?, rows(k)?, rows(v)?, rows(log_decay)?, rows(beta)?];
        Ok(Self { qkv: rows(&self.qkv)?, recurrence })
    }
}

/// The state before a window, and what has entered since.
#[derive(Clone, Debug)]
struct DeltaWindow {
    before: DeltaCache,
    rows: Option<DeltaRows>,
    embedding: Option<(Array, Vec<u32>)>,
}

impl DeltaCache {
    /// The state before the first token.
    pub fn new(
        stream: &Stream,
        conv: RowTail,
        matrices: [usize; 3],
        embedding: Option<(RowTail, TokenTail)>,
    ) -> Self {
        Self { conv, state: ops::fill(stream, matrices, DType::F32, 0.0), embedding, window: None }
    }

    /// What the convolutions of a batch make of `qkv` [N, C]: each sequence's rows go on from its cache's tail, which moves on.
    pub(crate) fn convolve(
        caches: &mut [&mut Self],
        qkv: &Array,
        segments: &[Segment],
        filters: &Array,
    ) -> Result<Array, LayerError> {
        let tails = caches.iter_mut().map(|cache| &mut cache.conv);
        RowTail::convolve(tails, qkv, segments, filters, 1)
    }

    /// Runs a batch through the recurrence, whose output [N, Hv, Dv] it returns; each cache goes to the state after its
    /// sequence's rows. Where a window is open, the rows are kept until it closes.
    pub(crate) fn recur(
        caches: &mut [&mut Self],
        rows: &DeltaRows,
        segments: &[Segment],
    ) -> Result<Array, LayerError> {
        let states: SmallVec<[&Array; 1]> = caches.iter().map(|cache| &cache.state).collect();
        let (out, next) =
            ops::gated_delta(rows.recurrence.each_ref(), &states, Segment::row_counts(segments))?;
        drop(states);
        for ((cache, state), segment) in caches.iter_mut().zip(next).zip(segments) {
            cache.state = state;
            if let Some(window) = &mut cache.window {
                window.rows = Some(rows.of(segment)?);
            }
        }
        Ok(out)
    }

    /// Goes on by rows that have been through the layer already.
    fn replay(&mut self, rows: &DeltaRows) -> Result<(), LayerError> {
        self.conv.push(&rows.qkv)?;
        let all = Segment { first_row: 0, rows: rows.qkv.shape()[0], first_position: 0 };
        Self::recur(&mut [self], rows, &[all])?;
        Ok(())
    }

    /// The same for a per-layer embedding: inputs of its convolution, and tokens.
    pub fn record_embedding(&mut self, rows: &Array, tokens: &[u32]) {
        if let Some(window) = &mut self.window {
            window.embedding = Some((rows.clone(), tokens.to_vec()));
        }
    }

    pub(super) fn begin_window(&mut self) {
        self.window = None;
        let before = self.clone();
        self.window = Some(Box::new(DeltaWindow { before, rows: None, embedding: None }));
    }

    /// Goes to the state after the first `keep` rows of the window by running them again from the state before it:
    /// only the convolution's tail and the recurrence, whose bits do not depend on the rows that follow.
    pub(super) fn commit_window(&mut self, keep: usize) -> Result<(), LayerError> {
        let Some(window) = self.window.take() else { return Ok(()) };
        let DeltaWindow { mut before, rows, embedding } = *window;
        if rows.as_ref().is_some_and(|rows| rows.qkv.shape()[0] == keep) {
            return Ok(());
        }
        if let (Some(rows), true) = (rows, keep > 0) {
            before.replay(&rows.first(keep)?)?;
        }
        if let (Some((conv, tail)), Some((rows, tokens)), true) = (&mut before.embedding, embedding, keep > 0)
        {
            conv.push(&ops::slice_rows(&rows, 0, keep)?)?;
            tail.push(&tokens[..keep]);
        }
        *self = before;
        Ok(())
    }

    pub(super) fn visit_parts(&self, visit: &mut PartVisitor<'_>) {
        self.conv.visit_parts("conv", visit);
        visit(format_args!("state"), &self.state);
        if let Some((conv, tokens)) = &self.embedding {
            conv.visit_parts("embedding.conv", visit);
            tokens.visit_parts("embedding.tokens", visit);
        }
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
