//! The public functions, a file an op: they check sizes, split work over threads and choose the kernel.

/// Calls `kernel` of the module `op` in the folder of the instruction set.
macro_rules! dispatch {
    ($cpu:expr, $op:ident::$kernel:ident($($argument:expr),* $(,)?)) => {
        match $cpu.isa() {
            $crate::Isa::Scalar => $crate::scalar::$op::$kernel($($argument),*),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Cpu` holds `Avx2` only if the machine was found to have AVX2, FMA and F16C.
            $crate::Isa::Avx2 => unsafe { $crate::x86_64::avx2::$op::$kernel($($argument),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above, and AVX-512 with VNNI besides.
            $crate::Isa::Avx512 => unsafe { $crate::x86_64::avx512::$op::$kernel($($argument),*) },
            #[cfg(target_arch = "aarch64")]
            // Most kernels of this folder are the plain loops, for which the block says too much.
            #[allow(unused_unsafe)]
            // SAFETY: a `Cpu` holds `Neon` only if the machine was found to have NEON with dot products.
            $crate::Isa::Neon => unsafe { $crate::aarch64::neon::$op::$kernel($($argument),*) },
        }
    };
}

mod attention;
mod binary;
mod causal_conv1d;
mod combine_experts;
mod convert;
mod delta_columns;
mod fma_flops;
mod gated_delta;
mod gated_pool;
mod gather_rows;
mod grouped_linear;
mod head_linear;
mod index_select;
mod keep_best_groups;
mod kimi_delta;
mod l2_norm;
mod linear;
mod manifold_coefficients;
mod product;
mod quantise;
mod read_bandwidth;
mod reduce;
mod rms_norm;
mod rope;
mod rope_pairs;
mod sequences;
mod sigmoid_gate;
mod softmax;
mod sort_by_expert;
mod stream_collapse;
mod stream_expand;
mod stream_inject;
mod stream_mix;
mod swiglu;
mod swiglu_clamped;
mod top_k;
mod unary;
mod windowed_attention;

pub(crate) use attention::AttentionPart;
pub use attention::{AttentionArgs, BlockSelection, attention};
pub use binary::{
    BinaryOp, binary, binary_column, binary_column_in_place, binary_in_place, binary_row, binary_row_in_place,
};
pub(crate) use causal_conv1d::ConvInputs;
pub use causal_conv1d::{CausalConv1dArgs, ConvSequence, causal_conv1d};
pub use combine_experts::combine_experts;
pub use convert::{convert, to_bf16, to_f16};
pub use delta_columns::DeltaSequence;
pub(crate) use delta_columns::{DeltaBlock, StateBlock};
pub use fma_flops::fma_flops;
pub use gated_delta::{GatedDeltaArgs, gated_delta};
pub use gated_pool::gated_pool;
pub use gather_rows::gather_rows;
pub use grouped_linear::grouped_linear;
pub use head_linear::{HeadMatrices, head_linear, head_linear_transposed};
pub use index_select::{IndexSelectArgs, index_select};
pub use keep_best_groups::keep_best_groups;
pub use kimi_delta::{KimiDeltaArgs, kimi_delta};
pub use l2_norm::l2_norm;
pub use linear::{LinearTarget, linear, linears};
pub use manifold_coefficients::{ManifoldArgs, manifold_coefficients};
pub use read_bandwidth::read_bandwidth;
pub use reduce::{ReduceOp, mean_middle, reduce};
pub use rms_norm::rms_norm;
pub use rope::rope;
pub use rope_pairs::rope_pairs;
pub use sigmoid_gate::sigmoid_gate;
pub use softmax::softmax;
pub use sort_by_expert::sort_by_expert;
pub use stream_collapse::stream_collapse;
pub use stream_expand::stream_expand;
pub use stream_inject::stream_inject;
pub use stream_mix::stream_mix;
pub use swiglu::swiglu;
pub use swiglu_clamped::swiglu_clamped;
pub use top_k::{argmax, top_k};
pub use unary::{UnaryOp, unary, unary_in_place};
pub(crate) use windowed_attention::WindowedPart;
pub use windowed_attention::{Entries, WindowedAttentionArgs, windowed_attention};
