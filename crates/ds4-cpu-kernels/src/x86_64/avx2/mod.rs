//! Kernels for AVX2 with FMA and F16C, a file an op.
//!
//! A remainder of less than a vector goes through the same vector code, padded, and not through a scalar loop: an element
//! must not get other bits because of where it stands. Ops that memory or integer work decides have no file here.
//!
//! Hot loops avoid adapters of the standard library that take closures over vectors (`map`, `from_fn`, `for_each`): those
//! are compiled without AVX2, so the closures would not be inlined into them. The adapters in `lanes.rs` have the feature.

mod attention_rows;
mod delta_columns;
mod exp;
mod lanes;
mod stored_product;

pub(crate) mod attention;
pub(crate) mod binary;
pub(crate) mod block_linear;
mod block_storage;
pub(crate) mod causal_conv1d;
pub(crate) mod convert;
pub(crate) mod fma_flops;
pub(crate) mod gated_delta;
pub(crate) mod gated_pool;
pub(crate) mod gather_rows;
pub(crate) mod head_linear;
pub(crate) mod index_select;
pub(crate) mod kimi_delta;
pub(crate) mod l2_norm;
pub(crate) mod linear;
pub(crate) mod linear_int8;
mod linear_int8_few;
mod linear_int8_groups;
pub(crate) mod linear_int8_panel;
pub(crate) mod linear_int8_scales;
mod linear_int8_stored;
pub(crate) mod packing;
pub(crate) mod panel;
pub(crate) mod quantise;
pub(crate) mod read_bandwidth;
pub(crate) mod reduce;
pub(crate) mod rms_norm;
pub(crate) mod rope;
pub(crate) mod rope_pairs;
pub(crate) mod sigmoid_gate;
pub(crate) mod softmax;
pub(crate) mod storage;
pub(crate) mod stream_collapse;
pub(crate) mod stream_expand;
pub(crate) mod stream_inject;
pub(crate) mod stream_mix;
pub(crate) mod swiglu;
pub(crate) mod swiglu_clamped;
pub(crate) mod unary;
pub(crate) mod windowed_attention;
