//! Kernels for NEON with dot products, where they beat plain loops, which compilers turn into NEON by themselves.

// Own modules take precedence over the ones brought in here.
pub(crate) use crate::scalar::*;

pub(crate) mod linear_int8;
