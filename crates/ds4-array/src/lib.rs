//! Lazy arrays: operations check their arguments and record a node; evaluation orders the graph and runs it on a
//! backend, frees inputs after their last use and lets an operation write into an input that nobody else holds.
//!
//! No files, no layers and no tokens here. An array belongs to a [`Stream`], a stream to a [`Device`]; which device
//! it is matters to nothing above this crate.
//!
//! ```
//! use ds4_array::{Array, Device, Stream, ops};
//!
//! let stream = Stream::new(&Device::cpu(1));
//! let x = Array::from_slice(&stream, &[1.0f32, -2.0], &[1, 2])?;
//! let w = Array::from_slice(&stream, &[0.5f32, 0.25, 1.0, 1.0], &[2, 2])?;
//! let y = ops::relu(&ops::linear(&x, &ops::Weight::dense(w))?)?; // nothing has run yet
//! assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0]);
//! # Ok::<(), ds4_array::ArrayError>(())
//! ```

mod array;
mod backend;
mod data;
mod device;
mod error;
mod evaluate;
mod memory;
mod observer;
mod primitive;
mod shape;
mod stream;
mod work;

pub mod ops;

pub use array::{Array, Element};
pub use device::{Backend, Device};
pub use ds4_cpu_kernels::{Activations, Cpu, Isa, Pool};
pub use ds4_dtype::DType;
pub use error::ArrayError;
pub use memory::{Allocator, MemoryStats};
pub use observer::{Observer, Ran};
pub use primitive::{BinaryOp, ReduceOp, UnaryOp};
pub use shape::Shape;
pub use stream::{Event, Stream, async_eval, eval};
pub use work::Work;
