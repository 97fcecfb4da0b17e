//! The public operations, a file a family. Each checks its arguments and records a node; nothing runs here.
//!
//! Activations are float32 matrices of rows (tokens), with heads as a middle axis where there are any: [L, W] or
//! [L, H, D]. The stream of the first argument computes the result.

mod attention;
mod block_weight;
mod check;
mod elementwise;
mod experts;
mod heads;
mod layout;
mod linear;
mod manifold;
mod norm;
mod pooling;
mod reduce;
mod rope;
mod sequence;
mod streams;
mod windowed_attention;

pub use attention::{BlockSelection, attention, index_select};
pub use block_weight::BlockCodes;
pub use elementwise::{
    abs, add, div, exp, maximum, minimum, mul, neg, relu, scale, scaled_sigmoid, scaled_silu, sigmoid,
    sigmoid_gate, signed_sqrt, silu, softplus, sqrt, sub, swiglu, swiglu_clamped,
};
pub use experts::{ExpertOrder, combine_experts, sort_by_expert};
pub use heads::{HeadRows, head_linear, head_linear_transposed};
pub use layout::{as_type, concatenate, copy, fill, reshape, slice, slice_columns, slice_rows, slice_update};
pub use linear::{Weight, gather_rows, grouped_linear, linear, linears};
pub use manifold::{manifold_coefficients, stream_collapse, stream_expand};
pub use norm::{l2_norm, rms_norm};
pub use pooling::gated_pool;
pub use reduce::{keep_best_groups, max, mean, mean_middle, softmax, sum, take_along, top_k};
pub use rope::{rope, rope_pairs};
pub use sequence::{causal_conv1d, gated_delta};
pub use streams::{stream_inject, stream_mix};
pub use windowed_attention::{CompressedEntries, TokenWindow, windowed_attention};
