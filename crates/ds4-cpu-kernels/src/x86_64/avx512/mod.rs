//! Kernels for AVX-512 with its integer dot products, where they beat those for AVX2; the others are those for AVX2.
//!
//! Only products of rounded activations have one: float sums would have other bits. Most single rows are left to AVX2, which
//! is as fast as memory there.

// Own modules take precedence over the ones brought in here.
pub(crate) use super::avx2::*;

pub(crate) mod linear_int8;
mod linear_int8_few;
mod linear_int8_panel;
mod linear_int8_scales;
