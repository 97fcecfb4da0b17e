//! SIMD kernels for the CPU: slices in, slices out.
//!
//! Activations are float32 and row-major; weights and caches are read as stored. There are no arrays, graphs or files
//! here, and no errors either: callers have checked shapes, and debug builds check them again.
//!
//! An op bears one name everywhere. `ops/<op>.rs` has the public function: it checks sizes, splits the work over the
//! threads of a [`Cpu`] and calls the kernel of the instruction set. `scalar/<op>.rs` has plain loops, the fallback
//! and the oracle of the tests; `x86_64/avx2/<op>.rs` has the version for AVX2, FMA and F16C, `x86_64/avx512/<op>.rs` that for AVX-512
//! with VNNI, and `aarch64/neon/<op>.rs` that for NEON with dot products, where they are worth it.
//!
//! # The law of rows
//!
//! A row of an output has the same bits whatever the number of rows in the call, wherever the row stands among them,
//! and on any number of threads. Prefill in chunks of any size, decoding, and the rows of a speculative check therefore
//! agree exactly. Kernels keep the law by never splitting a sum between threads, and by adding the terms of an output in
//! an order that depends on the length of the sum alone. `tests/row_law.rs` checks it for every kernel.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod activations;
mod block_matrix;
mod cpu;
mod disjoint;
mod matrix;
mod ops;
mod pool;
mod prefetch;
mod quantised;
mod rows;
mod scalar;
mod scratch;
mod streaming;
mod strided_rows;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use activations::Activations;
pub use block_matrix::{BlockCodes, BlockMatrix, BlockScales};
pub use cpu::{Cpu, Isa};
pub use matrix::{AffineMatrix, Matrix};
pub use ops::*;
pub use pool::Pool;
pub use strided_rows::StridedRows;
