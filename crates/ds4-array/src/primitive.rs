//! The operations that a backend has to know: one enum, matched without a wildcard.
//!
//! A variant holds what is fixed when the graph is built; arrays are the node's inputs, in the order given here. L
//! rows or tokens, H heads, D head size, E experts, K experts per token.

pub use ds4_cpu_kernels::{BinaryOp, BlockCodes, ReduceOp, UnaryOp};

use smallvec::SmallVec;

use crate::shape::MAX_RANK;

/// One operation of the graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Primitive {
    /// `[]`: every element is the value.
    Fill(f32),
    /// `[x]`: the elements in storage of their own.
    Copy,
    /// `[x]`: converts between float formats.
    AsType,
    /// `[x]`: same elements, other shape. A view if `x` is dense.
    Reshape,
    /// `[x]`: a box of `x` starting here. Always a view.
    Slice { start: [usize; MAX_RANK] },
    /// `[x, y, ..]`: joined along the axis.
    Concatenate { axis: usize },
    /// `[destination, rows]`: the destination with rows replaced from `start` on. In place if it can be.
    SliceUpdate { start: usize },
    /// `[x]`.
    Unary(UnaryOp),
    /// `[x]`: x * factor.
    Scale(f32),
    /// `[x]`: op(x * before) * after.
    ScaledUnary { before: f32, op: UnaryOp, after: f32 },
    /// `[a, b]`, with `b` broadcast as told.
    Binary(BinaryOp, Broadcast),
    /// `[gate, up]`: silu(gate) * up.
    SwiGlu,
    /// `[gate, up]`: silu(min(gate, limit)) * clamp(up, -limit, limit).
    SwiGluClamped(f32),
    /// `[x, gate]`: x * sigmoid(gate).
    SigmoidGate,
    /// `[x]`: over the last axis.
    Reduce(ReduceOp),
    /// `[x]`, [A, B, C]: mean over B.
    MeanMiddle,
    /// `[values, gates]`, [B, P, D]: sum over P of softmax over P of gates * values.
    GatedPool,
    /// `[x]`: over the last axis.
    Softmax,
    /// `[x]`: ids of the `k` largest of the last axis, best first, lower id on ties.
    TopK { k: usize },
    /// `[scores]`: minus infinity outside the `keep` best groups.
    KeepBestGroups { groups: usize, keep: usize },
    /// `[values, ids]`: picks along the last axis.
    TakeAlong,
    /// `[x, weight .., weight ..]`: x times each transposed weight, all of one format; outputs: the products.
    Linear { format: WeightFormat, weights: usize },
    /// `[x, offsets, rows, weight ..]`, without `rows` if each pair has its own row: times its expert's weight.
    GroupedLinear { format: WeightFormat, own_rows: bool },
    /// `[x, weight ..]`: x times the matrix of each head.
    HeadLinear(WeightFormat, HeadSpec),
    /// `[ids, table ..]`.
    GatherRows(WeightFormat),
    /// `[x]` or `[x, weight]`.
    RmsNorm { group: usize, weight_offset: f32, eps: f32 },
    /// `[x]`.
    L2Norm { eps: f32, scale: f32 },
    /// `[x, cos, sin]`.
    Rope { dims: usize },
    /// `[x, cos, sin]`: the last elements of each head, neighbours paired.
    RopePairs { dims: usize },
    /// `[x, weight, history ..]`, a history for each sequence; outputs: values, then the next histories.
    CausalConv { dilation: usize, silu: bool, rows: SequenceRows },
    /// `[q, k, v, g, beta, state ..]`, with a decay `g` for each head or each channel and a state for each sequence; outputs:
    /// values, then the new states.
    GatedDelta { rows: SequenceRows },
    /// `[q, key pages .., value pages ..]`, after `q` the selection if there is one.
    Attention(AttentionSpec),
    /// `[q, sinks, selected?, window pages .., entry pages ..]`.
    WindowedAttention(WindowedSpec),
    /// `[q, key pages ..]`, after `q` the weights of heads if there are any: ids of the best blocks.
    IndexSelect(IndexSpec),
    /// `[u, h]`: mean over the streams of sigmoid(u) * h.
    StreamMix { streams: usize },
    /// `[x, y, inject]`: x + y * inject in each stream.
    StreamInject,
    /// `[x, scale, base]`: weights of a manifold-constrained hyper-connection.
    ManifoldCoefficients(ManifoldSpec),
    /// `[x, weights]`: weighted sum of the streams.
    StreamCollapse { streams: usize },
    /// `[x, y, coefficients]`: streams mixed, with y added to each.
    StreamExpand { streams: usize },
    /// `[ids]`; outputs: rows, offsets, position.
    SortByExpert { experts: usize },
    /// `[y, position, weights]`.
    CombineExperts,
    /// `[producer]`: an output of the producer after its first.
    Output { index: usize },
}

/// How many rows each sequence of a batch has; they follow one another.
pub(crate) type SequenceRows = SmallVec<[usize; 2]>;

/// Sizes of a manifold-constrained hyper-connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ManifoldSpec {
    pub(crate) streams: usize,
    pub(crate) iterations: usize,
    pub(crate) eps: f32,
}

/// How the second operand of a binary operation meets the first, a matrix of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broadcast {
    /// Same shape.
    None,
    /// One row, for every row.
    Row,
    /// One value a row, for all its elements.
    Column,
}

/// How the elements of a weight are stored; says which arrays follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightFormat {
    /// One float array.
    Dense,
    /// Packed u32, scales, biases.
    Affine { bits: u32, group: usize },
    /// Codes of small floats, scales of blocks.
    Block { codes: BlockCodes, block: [usize; 2], period: usize },
}

impl WeightFormat {
    /// Arrays that a weight of this format consists of.
    pub(crate) fn parts(self) -> usize {
        match self {
            Self::Dense => 1,
            Self::Block { .. } => 2,
            Self::Affine { .. } => 3,
        }
    }
}

/// Where the matrices of heads lie in a weight, and which way round they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadSpec {
    pub(crate) stride: usize,
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) transposed: bool,
}

/// Sizes of an attention call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AttentionSpec {
    pub(crate) first_position: usize,
    pub(crate) scale: f32,
    /// Tokens in a selected block; `None` without selection.
    pub(crate) block: Option<usize>,
}

/// Sizes of an attention call over a window and entries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WindowedSpec {
    pub(crate) first_position: usize,
    /// Position of the first row of the window.
    pub(crate) window_start: usize,
    pub(crate) span: usize,
    pub(crate) window_pages: usize,
    /// Tokens of an entry; `None` without entries.
    pub(crate) rate: Option<usize>,
    /// Whether there are ids of selected entries.
    pub(crate) selects: bool,
    pub(crate) scale: f32,
}

/// Sizes of an index selection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IndexSpec {
    /// Whether heads are weighted.
    pub(crate) weighted: bool,
    pub(crate) first_position: usize,
    pub(crate) block: usize,
    pub(crate) scale: f32,
}
