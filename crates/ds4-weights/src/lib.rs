//! Model files on disk: safetensors, mapped into memory and indexed by tensor name; and the way back, writing them.
//!
//! A [`ModelFiles`] says where files come from (a folder, or the executable itself), a [`Checkpoint`] holds every
//! tensor of a model as a view into the mapped files. Everything read here is untrusted input: headers are checked
//! before a byte of data is looked at, and all problems are reported together.
//!
//! What a tensor name means is the model's business, with one exception: which weights of a family lose too much
//! when quantised ([`keeps_precision`]) is written down beside the quantiser that asks.

mod block_scaled;
mod checkpoint;
mod error;
mod index;
mod mapping;
mod model_files;
mod problem;
pub mod quantize;
mod safetensors;
mod shard_writer;
mod tensor;
mod writer;

pub use block_scaled::{BlockFault, BlockScaled, block_of_grid, is_scale_type, scale_names};
pub use checkpoint::{Checkpoint, UnsupportedTensor};
pub use error::{WeightsError, WriteError};
pub use model_files::ModelFiles;
pub use problem::{Problem, ProblemKind};
pub use quantize::keeps_precision;
pub use safetensors::{ElementType, Header, HeaderEntry, parse_header};
pub use shard_writer::{ShardWriter, WrittenShards};
pub use tensor::{Tensor, TensorBytes};
pub use writer::{SafetensorsWriter, TensorSpec};

// Files are little-endian and are read in place.
const _: () =
    assert!(cfg!(target_endian = "little"), "tensors are read in place: a little-endian machine is needed");
