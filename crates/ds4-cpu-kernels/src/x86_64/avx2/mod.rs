//! AVX2
pub(crate) use crate::scalar::*;
