//! What an evaluated array holds: shared storage, an offset and strides.

use std::sync::Arc;

use crate::memory::Buffer;
use crate::shape::{MAX_RANK, Shape};

/// Bytes that arrays share.
pub(crate) enum Storage {
    /// From a device's pool.
    Owned(Buffer),
    /// Somebody else's, for example a mapped file. Never written.
    External(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl Storage {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(buffer) => buffer.bytes(),
            Self::External(bytes) => (**bytes).as_ref(),
        }
    }
}

/// A view of a storage. Offset and strides are in elements.
#[derive(Clone)]
pub(crate) struct Data {
    pub(crate) storage: Arc<Storage>,
    pub(crate) offset: usize,
    pub(crate) strides: [usize; MAX_RANK],
}

impl Data {
    /// A view of a whole storage, dense in row-major order.
    pub(crate) fn dense(storage: Storage, shape: &Shape) -> Self {
        Self { storage: Arc::new(storage), offset: 0, strides: shape.dense_strides() }
    }

    /// A box of it that begins at `start`.
    pub(crate) fn part_from(&self, start: &[usize]) -> Self {
        let skipped: usize = start.iter().zip(&self.strides).map(|(start, stride)| start * stride).sum();
        Self { storage: Arc::clone(&self.storage), offset: self.offset + skipped, strides: self.strides }
    }

    /// The same elements, which have `shape`, as `other`; `None` if they do not lie one after the other.
    pub(crate) fn in_shape(&self, shape: &Shape, other: &Shape) -> Option<Self> {
        let storage = || Arc::clone(&self.storage);
        let view = || Self { storage: storage(), offset: self.offset, strides: other.dense_strides() };
        self.is_dense(shape).then(view)
    }

    /// Whether the elements of `shape` lie one after the other. Strides of axes of size 1 do not matter.
    pub(crate) fn is_dense(&self, shape: &Shape) -> bool {
        let dense = shape.dense_strides();
        (0..shape.len()).all(|axis| shape[axis] == 1 || self.strides[axis] == dense[axis])
    }

    /// How far apart the rows of a matrix of `shape` lie, if its elements lie together in each. `None` also for other ranks.
    pub(crate) fn row_stride(&self, shape: &Shape) -> Option<usize> {
        let is_matrix = shape.len() == 2 && shape[1] > 0;
        (is_matrix && (self.strides[1] == 1 || shape[1] == 1)).then_some(self.strides[0])
    }

    /// The storage for writing, if nobody else can see it and this view covers it from its start.
    pub(crate) fn exclusive(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.offset != 0 {
            return None;
        }
        match Arc::get_mut(&mut self.storage)? {
            Storage::Owned(buffer) if buffer.bytes().len() == bytes => Some(buffer.bytes_mut()),
            Storage::Owned(_) | Storage::External(_) => None,
        }
    }
}
