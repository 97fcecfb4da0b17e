//! What can go wrong in a layer.

use ds4_array::ArrayError;

use crate::CacheError;

/// An error while a layer's graph is built or its state is handled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// An operation refused its arguments or failed.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// A cache does not fit.
    #[error(transparent)]
    Cache(#[from] CacheError),
}
