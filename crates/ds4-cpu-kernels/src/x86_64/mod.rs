//! Kernels for x86-64 processors, a folder an instruction set.

pub(crate) mod avx2;
pub(crate) mod avx512;
