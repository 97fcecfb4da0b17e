//! What every family offers to the engine: a forward pass over a ragged batch.

use ds4_array::{Array, DType, Stream, eval};
use ds4_layers::SequenceCache;

use crate::{LayerDecisions, ModelError, SkippedPart};

/// For which of its rows a segment wants logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitRows {
    /// For none: a prefill chunk that is not the last.
    None,
    /// For the last one.
    Last,
    /// For every one: a speculative check, or a parity run.
    All,
}

/// Some new tokens of one sequence, in a batch.
#[derive(Debug)]
pub struct BatchSegment<'a> {
    /// The tokens; at least one.
    pub tokens: &'a [u32],
    /// What came before them. They are appended.
    pub cache: &'a mut SequenceCache,
    /// Which logits are wanted.
    pub logits: LogitRows,
}

/// A causal language model.
pub trait CausalLm: Send {
    /// Size of the vocabulary.
    fn vocabulary(&self) -> usize;

    /// Most tokens of a sequence that the configuration promises.
    fn max_context(&self) -> usize;

    /// Caches of a sequence without tokens.
    fn new_cache(&self) -> SequenceCache;

    /// Builds the graph of one pass over all segments and appends to their caches. Nothing is evaluated yet: logits and
    /// caches have to be evaluated together.
    fn build(&self, batch: &mut [BatchSegment<'_>]) -> Result<Forward, ModelError>;

    /// What one pass over `tokens` of a new sequence decides, by layer. For checks: it costs more than the pass itself.
    fn decisions(&self, tokens: &[u32]) -> Result<Vec<LayerDecisions>, ModelError>;

    /// Runs one pass: [`build`](Self::build), then evaluation of logits and caches.
    fn forward(&self, batch: &mut [BatchSegment<'_>]) -> Result<Forward, ModelError> {
        let forward = self.build(batch)?;
        let mut arrays: Vec<Array> = batch.iter().flat_map(|segment| segment.cache.pending()).collect();
        arrays.extend(forward.logits.clone());
        eval(&arrays.iter().collect::<Vec<_>>())?;
        Ok(forward)
    }

    /// The head that drafts tokens ahead, if the checkpoint has one.
    fn draft_head(&self) -> Option<Box<dyn DraftHead + '_>> {
        None
    }
}

/// What a pass computes besides the caches.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The wanted logits, [R, V] float32 in the order of segments and rows; `None` if no segment wants any.
    pub logits: Option<Array>,
    /// The residual streams of all rows after the last layer, [N, W] float32: what a draft head reads. `None` in families
    /// without one.
    pub streams: Option<Array>,
}

/// A small model on top of a model's residual streams that predicts one token further.
pub trait DraftHead {
    /// Its cache before the first row.
    fn new_cache(&self) -> SequenceCache;

    /// Builds the graph of one pass: row i combines the streams [L, W] of some token with the id of the token after it. The
    /// rows are appended to the cache. Returns the head's own streams [L, W], from which it can go on by itself. Evaluating
    /// the cache alone does no more work than that needs.
    fn build(
        &self,
        streams: &Array,
        next_tokens: &[u32],
        cache: &mut SequenceCache,
    ) -> Result<Array, ModelError>;

    /// Logits [L, V] of the token after `next_tokens`, from the head's streams.
    fn logits(&self, streams: &Array) -> Result<Array, ModelError>;
}

/// Choices at load time.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where the model computes.
    pub stream: Stream,
    /// Float format of cached keys and values.
    pub key_value_dtype: DType,
}

impl LoadOptions {
    /// Computes on `stream`, with caches as exact as the arithmetic.
    pub fn new(stream: &Stream) -> Self {
        Self { stream: stream.clone(), key_value_dtype: DType::F32 }
    }
}

/// Whose rules a family's sampler follows: the reference that its answers are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerRule {
    /// Top-p and top-k measured on the whole vocabulary, draws from PCG64.
    Mtplx,
    /// Min-p and a walk over raw masses, draws from xorshift64*.
    Ds4,
}

/// A model and what loading found out.
pub struct LoadedModel {
    /// The model.
    pub model: Box<dyn CausalLm>,
    /// Where it computes; saved states are restored there.
    pub stream: Stream,
    /// `model_type` of config.json.
    pub model_type: String,
    /// Whose rules sampling follows.
    pub sampler: SamplerRule,
    /// Parameters, those of a draft head included.
    pub parameters: u64,
    /// Bytes of all tensors that are used.
    pub weight_bytes: u64,
    /// Bytes of weights that one token reads when it is decoded alone: everything but the draft head, the experts that
    /// it is not routed to, and the rows of embedding tables that are not its own.
    pub bytes_per_token: u64,
    /// Parts of the checkpoint that were left out because they are not supported.
    pub skipped: Vec<SkippedPart>,
}
