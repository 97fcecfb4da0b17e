//! What can go wrong when a graph is built or run. Messages begin with the operation's name.

use ds4_dtype::DType;

use crate::Shape;

/// An error of an array operation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// An argument has the wrong shape.
    #[error("[{op}] {argument} must have shape {expected}, got {actual:?}")]
    Shape {
        /// Operation.
        op: &'static str,
        /// Which argument.
        argument: &'static str,
        /// What would be right, with the sizes that are known.
        expected: String,
        /// What was given.
        actual: Shape,
    },
    /// An argument has the wrong element type.
    #[error("[{op}] {argument} must be {expected}, got {actual}")]
    DType {
        /// Operation.
        op: &'static str,
        /// Which argument.
        argument: &'static str,
        /// The types that would be right.
        expected: &'static str,
        /// What was given.
        actual: DType,
    },
    /// A number is out of its range.
    #[error("[{op}] {argument} must be {expected}, got {actual}")]
    Value {
        /// Operation.
        op: &'static str,
        /// Which argument.
        argument: &'static str,
        /// The range.
        expected: String,
        /// What was given.
        actual: usize,
    },
    /// The buffer does not hold as many bytes as shape and type need.
    #[error("[{op}] {expected} bytes are needed, got {actual}")]
    Bytes {
        /// Operation.
        op: &'static str,
        /// Bytes that shape and type need.
        expected: usize,
        /// Bytes that are there.
        actual: usize,
    },
    /// The device's memory limit would be exceeded.
    #[error("out of memory: {requested} bytes requested, {active} in use, limit {limit}")]
    OutOfMemory {
        /// Bytes asked for.
        requested: usize,
        /// Bytes held by arrays.
        active: usize,
        /// The limit.
        limit: usize,
    },
    /// The array was part of an evaluation that failed before this array's turn.
    #[error("the array was never computed: an earlier operation of its evaluation failed")]
    NotComputed,
    /// A kernel panicked, which is a defect of this program.
    #[error("a kernel panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
}
