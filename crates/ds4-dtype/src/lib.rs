//! Number formats: what the bytes of weights and arrays mean. The truth for every backend.
//!
//! No arrays and no files here: an element type, a borrowed view of floats in any of the three storage formats, and
//! the quantised block layouts with their scalar encode and decode.

pub mod block_formats;
mod dtype;
mod floats;

pub use block_formats::affine::{AffineError, AffineLayout, AffineRow};
pub use dtype::DType;
pub use floats::Floats;
pub use half::{bf16, f16};
