//! Formats that store a block of weights with fewer bits than a float each, and what the block shares.

pub mod affine;
pub mod small_floats;
