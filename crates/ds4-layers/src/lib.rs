//! Layers that the model families share, and the cache contract
