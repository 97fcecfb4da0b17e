//! Kernels for 64-bit ARM processors.

pub(crate) mod neon;
