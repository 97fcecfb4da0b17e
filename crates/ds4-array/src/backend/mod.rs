//! Primitives to kernels. The front end has checked every argument; here sizes are only unpacked.
//!
//! Both backends run the same code over different kernels: the reference uses the plain scalar loops on one thread.

mod attention;
mod call;
mod elementwise;
mod experts;
mod heads;
mod layout;
mod linear;
mod manifold;
mod norm;
mod pooling;
mod reduce;
mod sequence;
mod streams;
mod strided;
mod windowed_attention;

use crate::array::{Node, Operation};
use crate::data::Data;
use crate::primitive::Primitive;
use crate::{ArrayError, Device};

use call::Call;
pub(crate) use strided::gather_dense;

/// What a node came to.
pub(crate) struct Outputs {
    /// Its own value.
    pub(crate) first: Data,
    /// Those of its `Output` nodes.
    pub(crate) further: Vec<Data>,
}

/// Runs one node.
pub(crate) fn run(device: &Device, operation: Operation, node: &Node) -> Result<Outputs, ArrayError> {
    let Operation { primitive, inputs } = operation;
    let mut call = Call::new(device, inputs, node);
    let first = match primitive {
        Primitive::Fill(value) => layout::fill(&call, value),
        Primitive::Copy => layout::copy(&call),
        Primitive::AsType => layout::as_type(&call),
        Primitive::Reshape => layout::reshape(&call),
        Primitive::Slice { start } => layout::slice(&call, &start),
        Primitive::Concatenate { axis } => layout::concatenate(&call, axis),
        Primitive::SliceUpdate { start } => layout::slice_update(&mut call, start),
        Primitive::Unary(op) => elementwise::unary(&mut call, op),
        Primitive::Scale(factor) => elementwise::scale(&mut call, factor),
        Primitive::ScaledUnary { before, op, after } => {
            elementwise::scaled_unary(&mut call, before, op, after)
        }
        Primitive::Binary(op, broadcast) => elementwise::binary(&mut call, op, broadcast),
        Primitive::SwiGlu => elementwise::swiglu(&call),
        Primitive::SwiGluClamped(limit) => elementwise::swiglu_clamped(&call, limit),
        Primitive::SigmoidGate => elementwise::sigmoid_gate(&call),
        Primitive::Reduce(op) => reduce::reduce(&call, op),
        Primitive::MeanMiddle => reduce::mean_middle(&call),
        Primitive::GatedPool => pooling::gated_pool(&call),
        Primitive::Softmax => reduce::softmax(&call),
        Primitive::TopK { k } => reduce::top_k(&call, k),
        Primitive::KeepBestGroups { groups, keep } => reduce::keep_best_groups(&call, groups, keep),
        Primitive::TakeAlong => reduce::take_along(&call),
        Primitive::Linear { format, weights } => return linear::linear(&call, format, weights),
        Primitive::GroupedLinear { format, own_rows } => linear::grouped_linear(&call, format, own_rows),
        Primitive::HeadLinear(format, spec) => heads::head_linear(&call, format, spec),
        Primitive::GatherRows(format) => linear::gather_rows(&call, format),
        Primitive::RmsNorm { group, weight_offset, eps } => norm::rms_norm(&call, group, weight_offset, eps),
        Primitive::L2Norm { eps, scale } => norm::l2_norm(&call, eps, scale),
        Primitive::Rope { dims } => sequence::rope(&call, dims),
        Primitive::RopePairs { dims } => sequence::rope_pairs(&call, dims),
        Primitive::CausalConv { dilation, silu, rows } => {
            return sequence::causal_conv1d(&call, dilation, silu, &rows);
        }
        Primitive::GatedDelta { rows } => return sequence::gated_delta(&mut call, &rows),
        Primitive::Attention(spec) => attention::attention(&call, spec),
        Primitive::WindowedAttention(spec) => windowed_attention::windowed_attention(&call, spec),
        Primitive::IndexSelect(spec) => attention::index_select(&call, spec),
        Primitive::StreamMix { streams } => streams::stream_mix(&call, streams),
        Primitive::StreamInject => streams::stream_inject(&mut call),
        Primitive::ManifoldCoefficients(spec) => manifold::coefficients(&call, spec),
        Primitive::StreamCollapse { streams } => manifold::collapse(&call, streams),
        Primitive::StreamExpand { streams } => manifold::expand(&call, streams),
        Primitive::SortByExpert { experts } => return experts::sort_by_expert(&call, experts),
        Primitive::CombineExperts => experts::combine_experts(&call),
        Primitive::Output { index } => call.take_extra(index),
    };
    Ok(Outputs { first: first?, further: Vec::new() })
}
