//! Quantising small checkpoints and looking at what comes out.
