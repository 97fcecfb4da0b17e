//! The parts of a state: named bytes with a type tag and a shape, which mean nothing to this crate.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A part to be saved.
#[derive(Clone, Copy, Debug)]
pub struct PartRef<'a> {
    /// Unique in its state, 1 to 65,535 bytes.
    pub name: &'a str,
    /// Element type as the caller writes it, at most 255 bytes. Nothing is converted.
    pub dtype: &'a str,
    /// At most 255 dimensions.
    pub shape: &'a [u64],
    /// The elements as they are in memory.
    pub bytes: &'a [u8],
    /// Parts of one group lie together in a blob that all states with the same content share. For parts that do not
    /// change any more, such as full pages: best one group for all parts that become full together, because each
    /// group is a file. `None` for parts that change; these lie in the state's own file.
    pub group: Option<u64>,
}

/// A part that was read and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedPart {
    /// As it was saved.
    pub name: String,
    /// As it was saved.
    pub dtype: String,
    /// As it was saved.
    pub shape: Vec<u64>,
    /// As they were saved.
    pub bytes: PartBytes,
}

/// Bytes of a part within the file they came from. No alignment is promised.
#[derive(Clone)]
pub struct PartBytes {
    file: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl PartBytes {
    /// `range` must lie in the file.
    pub(crate) fn new(file: Arc<Vec<u8>>, range: Range<usize>) -> Self {
        debug_assert!(range.start <= range.end && range.end <= file.len());
        Self { file, range }
    }
}

impl Deref for PartBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.file[self.range.clone()]
    }
}

impl PartialEq for PartBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for PartBytes {}

impl fmt::Debug for PartBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
