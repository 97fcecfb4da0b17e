//! Layers that the model families share, and the cache contract.
//!
//! A layer knows its weights and its arithmetic, not which family it belongs to, nor how a batch was put together: it
//! sees rows and a list of [`Segment`]s. Nothing here knows a device or a quantisation format.

mod cache;
mod error;
mod experts;
mod gated_delta_net;
mod gated_mlp;
mod hyper_connection;
mod indexed_attention;
mod key_compressor;
mod kimi_delta_attention;
mod kpool_indexer;
mod latent_attention;
mod manifold_hyper_connection;
mod ngram_embedding;
mod param;
mod qsa_indexer;
mod rope;
mod scored_moe;
mod segment;
mod shared_key_attention;
mod sparse_moe;

pub use cache::{
    AttentionCache, CacheError, CompleteRuns, CompressorCache, DeltaCache, DeltaRows, IndexCache,
    LatentCache, LayerCache, NamedArrays, PagedRows, RowTail, SequenceCache, StateSource, TokenTail,
    WindowedCache,
};
pub use error::LayerError;
pub use experts::Experts;
pub use gated_delta_net::{GateActivation, GatedDeltaNet, GatedDeltaSizes};
pub use gated_mlp::GatedMlp;
pub use hyper_connection::{GatedResidual, StreamsRead};
pub use indexed_attention::{AttentionSizes, IndexedAttention};
pub use key_compressor::{CompressorSizes, KeyCompressor};
pub use kimi_delta_attention::{KimiDeltaAttention, KimiDeltaSizes};
pub use kpool_indexer::KPoolIndexer;
pub use latent_attention::{LatentAttention, LatentSizes, Selections};
pub use manifold_hyper_connection::{ManifoldHead, ManifoldHyperConnection, ManifoldSizes};
pub use ngram_embedding::{NGramEmbedding, NGramSizes};
pub use param::{ParamError, ParamProblem, Params, Scope};
pub use qsa_indexer::{IndexerSizes, QsaIndexer};
pub use rope::{Rope, RopeRows, Yarn};
pub use scored_moe::{RouterScore, Routing, ScoredMoe, ScoredMoeSizes};
pub use segment::{Segment, per_segment};
pub use shared_key_attention::{EntryIndexSizes, SharedKeyAttention, SharedKeySizes};
pub use sparse_moe::{MoeSizes, SparseMoe};
