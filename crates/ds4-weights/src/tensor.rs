//! A tensor of a checkpoint: name, type, shape and where its bytes are.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytemuck::cast_slice;
use ds4_dtype::{DType, Floats};

use crate::mapping::Mapping;

/// One tensor. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Full name, as in the file.
    pub name: String,
    /// Type of an element.
    pub dtype: DType,
    /// Sizes of the dimensions, outermost first. Empty for a single value.
    pub shape: Vec<usize>,
    /// The elements, row-major, little-endian, aligned to the size of an element.
    pub bytes: TensorBytes,
}

impl Tensor {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, if they are floats.
    pub fn floats(&self) -> Option<Floats<'_>> {
        floats(self.dtype, self.bytes.as_ref())
    }

    /// The elements, if they are of type U32.
    pub fn u32s(&self) -> Option<&[u32]> {
        (self.dtype == DType::U32).then(|| cast_slice(self.bytes.as_ref()))
    }

    /// The elements, if they are of type I64.
    pub fn i64s(&self) -> Option<&[i64]> {
        (self.dtype == DType::I64).then(|| cast_slice(self.bytes.as_ref()))
    }

    /// The bytes of row `i`, counting every dimension but the last as rows. Only the pages of this row are read.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, i: usize) -> &[u8] {
        let width = self.shape.last().copied().unwrap_or(1) * self.dtype.size();
        &self.bytes.as_ref()[i * width..(i + 1) * width]
    }

    /// Says that this tensor is read in scattered rows, so that the system reads nothing ahead of them and
    /// [`prefetch`](crate::Checkpoint::prefetch) leaves it on disk.
    pub fn advise_random(&self) {
        if let Region::Mapped(mapping) = &self.bytes.region {
            mapping.advise_random(self.bytes.range.clone());
        }
    }
}

/// `bytes` as floats of type `dtype`, if it is a float type. They must be aligned and a whole number of elements.
pub(crate) fn floats(dtype: DType, bytes: &[u8]) -> Option<Floats<'_>> {
    match dtype {
        DType::F32 => Some(Floats::F32(cast_slice(bytes))),
        DType::F16 => Some(Floats::F16(cast_slice(bytes))),
        DType::BF16 => Some(Floats::Bf16(cast_slice(bytes))),
        _ => None,
    }
}

/// The bytes of a tensor, wherever they live. Cloning shares them.
#[derive(Clone, Debug)]
pub struct TensorBytes {
    region: Region,
    range: Range<usize>,
}

/// A whole file, or a copy of one tensor.
#[derive(Clone, Debug)]
pub(crate) enum Region {
    Mapped(Arc<Mapping>),
    Static(&'static [u8]),
    /// u64 for its alignment.
    Copied(Arc<[u64]>),
}

impl Region {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping.bytes(),
            Self::Static(bytes) => bytes,
            Self::Copied(words) => cast_slice(words),
        }
    }
}

/// The whole file `path`, mapped.
pub(crate) fn mapped(path: &Path) -> io::Result<Region> {
    Mapping::open(path).map(|mapping| Region::Mapped(Arc::new(mapping)))
}

impl TensorBytes {
    /// The bytes `range` of `region`, copied if they do not start at a multiple of `alignment`: the format does not
    /// promise one, and embedded files have none.
    pub(crate) fn new(region: &Region, range: Range<usize>, alignment: usize) -> Self {
        let bytes = &region.bytes()[range.clone()];
        if bytes.as_ptr().addr().is_multiple_of(alignment) {
            return Self { region: region.clone(), range };
        }
        let mut words = vec![0u64; bytes.len().div_ceil(size_of::<u64>())];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self { range: 0..bytes.len(), region: Region::Copied(words.into()) }
    }

    /// Lets go of the memory behind mapped bytes that were copied elsewhere. They stay readable.
    pub fn release(&self) {
        if let Region::Mapped(mapping) = &self.region {
            mapping.release(&self.range);
        }
    }

    /// Whether they are read in scattered rows.
    pub(crate) fn are_random(&self) -> bool {
        match &self.region {
            Region::Mapped(mapping) => mapping.is_random(&self.range),
            Region::Static(_) | Region::Copied(_) => false,
        }
    }

    /// Brings the bytes into memory, a part at a time; `loaded` is told how many bytes each part had.
    pub(crate) fn load(&self, loaded: &mut dyn FnMut(u64)) {
        const PART: usize = 16 << 20;
        let mut start = self.range.start;
        while start < self.range.end {
            let end = self.range.end.min(start + PART);
            if let Region::Mapped(mapping) = &self.region {
                mapping.load(start..end);
            }
            loaded((end - start) as u64);
            start = end;
        }
    }
}

impl AsRef<[u8]> for TensorBytes {
    fn as_ref(&self) -> &[u8] {
        &self.region.bytes()[self.range.clone()]
    }
}
