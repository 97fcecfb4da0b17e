//! Plain loops, a file an op: what runs where no vector version does, and what those are tested against.

pub(crate) mod attention;
pub(crate) mod binary;
pub(crate) mod causal_conv1d;
pub(crate) mod convert;
pub(crate) mod fma_flops;
pub(crate) mod gated_delta;
pub(crate) mod gather_rows;
pub(crate) mod index_select;
pub(crate) mod l2_norm;
pub(crate) mod linear;
pub(crate) mod manifold_coefficients;
pub(crate) mod read_bandwidth;
pub(crate) mod reduce;
pub(crate) mod rms_norm;
pub(crate) mod rope;
pub(crate) mod rope_pairs;
pub(crate) mod sigmoid_gate;
pub(crate) mod softmax;
pub(crate) mod stream_collapse;
pub(crate) mod stream_expand;
pub(crate) mod stream_inject;
pub(crate) mod stream_mix;
pub(crate) mod swiglu;
pub(crate) mod top_k;
pub(crate) mod unary;
pub(crate) mod windowed_attention;
