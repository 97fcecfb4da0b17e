//! Writes one safetensors file whose tensors are known beforehand, in pieces of any size and in any order.
//!
//! The file appears under its name only when it is complete.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ds4_dtype::DType;
use serde_json::{Map, Value, json};

use crate::WriteError;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Full name.
    pub name: String,
    /// Type of an element.
    pub dtype: DType,
    /// Sizes of the dimensions, outermost first.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// A tensor of this name, type and shape.
    pub fn new(name: impl Into<String>, dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        Self { name: name.into(), dtype, shape: shape.into() }
    }

    /// Bytes of the data.
    pub(crate) fn bytes(&self) -> Result<u64, WriteError> {
        let size = self.shape.iter().try_fold(self.dtype.size() as u64, |n, &d| n.checked_mul(d as u64));
        size.ok_or_else(|| WriteError::ShapeOverflow { tensor: self.name.clone(), shape: self.shape.clone() })
    }
}

/// A safetensors file being written. Dropped before [`finish`](Self::finish), it leaves nothing behind.
#[derive(Debug)]
pub struct SafetensorsWriter {
    file: File,
    path: PathBuf,
    partial: Option<PathBuf>,
    tensors: HashMap<String, Slot>,
}

/// Where a tensor's data goes.
#[derive(Debug)]
struct Slot {
    dtype: DType,
    start: u64,
    size: u64,
    written: u64,
}

impl SafetensorsWriter {
    /// Starts the file `path` for `tensors`, which come out ordered by falling element size so that all are aligned.
    ///
    /// # Errors
    /// Two tensors of one name, or the file cannot be created.
    pub fn create(path: &Path, tensors: &[TensorSpec]) -> Result<Self, WriteError> {
        let mut ordered: Vec<&TensorSpec> = tensors.iter().collect();
        ordered.sort_by_key(|spec| std::cmp::Reverse(spec.dtype.size()));

        let mut header = Map::new();
        let mut slots = HashMap::new();
        let mut offset = 0u64;
        for spec in ordered {
            let size = spec.bytes()?;
            let end = offset.checked_add(size).ok_or_else(|| WriteError::ShapeOverflow {
                tensor: spec.name.clone(),
                shape: spec.shape.clone(),
            })?;
            let entry = json!({
                "dtype": spec.dtype.name(), "shape": spec.shape, "data_offsets": [offset, end],
            });
            if header.insert(spec.name.clone(), entry).is_some() {
                return Err(WriteError::DuplicateName { tensor: spec.name.clone() });
            }
            slots.insert(spec.name.clone(), Slot { dtype: spec.dtype, start: offset, size, written: 0 });
            offset = end;
        }
        let mut text = Value::Object(header).to_string().into_bytes();
        // Padding is part of the header: it puts the data at a multiple of eight.
        text.resize(text.len().next_multiple_of(8), b' ');
        let data_start = 8 + text.len() as u64;
        slots.values_mut().for_each(|slot| slot.start += data_start);

        let partial = partial_name(path);
        let io_error = |source| WriteError::Io { path: partial.clone(), source };
        let file = File::create(&partial).map_err(io_error)?;
        let mut writer = Self { file, path: path.to_owned(), partial: Some(partial.clone()), tensors: slots };
        let prefix = (text.len() as u64).to_le_bytes();
        let started = writer.file.write_all(&prefix).and_then(|()| writer.file.write_all(&text));
        started.and_then(|()| writer.file.set_len(data_start + offset)).map_err(io_error)?;
        Ok(writer)
    }

    /// Adds `bytes` to the data of `tensor`, after what it has already.
    ///
    /// # Errors
    /// An unknown name, more bytes than the shape holds, or a failed write.
    pub fn write(&mut self, tensor: &str, bytes: &[u8]) -> Result<(), WriteError> {
        let Some(slot) = self.tensors.get_mut(tensor) else {
            return Err(WriteError::UnknownTensor { tensor: tensor.to_owned() });
        };
        let given = slot.written + bytes.len() as u64;
        if given > slot.size {
            return Err(WriteError::TooMuchData { tensor: tensor.to_owned(), expected: slot.size, given });
        }
        let sought = self.file.seek(SeekFrom::Start(slot.start + slot.written));
        let written = sought.and_then(|_| self.file.write_all(bytes));
        slot.written = given;
        written.map_err(|source| self.io_error(source))
    }

    /// Adds f32 elements to `tensor`: rows of logits, for one.
    ///
    /// # Errors
    /// As [`write`](Self::write), and if the tensor is not of type F32.
    pub fn write_f32(&mut self, tensor: &str, values: &[f32]) -> Result<(), WriteError> {
        if let Some(announced) = self.tensors.get(tensor).map(|s| s.dtype).filter(|&d| d != DType::F32) {
            return Err(WriteError::WrongType { tensor: tensor.to_owned(), announced, given: DType::F32 });
        }
        self.write(tensor, bytemuck::cast_slice(values))
    }

    /// Completes the file: everything is on disk and under its name when this returns.
    ///
    /// # Errors
    /// A tensor that lacks data, or a failed write.
    pub fn finish(mut self) -> Result<(), WriteError> {
        let mut incomplete: Vec<_> =
            self.tensors.iter().filter(|(_, slot)| slot.written < slot.size).collect();
        incomplete.sort_by_key(|(_, slot)| slot.start);
        if let Some((tensor, slot)) = incomplete.first() {
            let tensor = (*tensor).clone();
            return Err(WriteError::Incomplete { tensor, expected: slot.size, given: slot.written });
        }
        self.file.sync_all().map_err(|source| self.io_error(source))?;
        if let Some(partial) = &self.partial {
            fs::rename(partial, &self.path).map_err(|source| self.io_error(source))?;
        }
        self.partial = None;
        Ok(())
    }

    fn io_error(&self, source: io::Error) -> WriteError {
        WriteError::Io { path: self.path.clone(), source }
    }
}

impl Drop for SafetensorsWriter {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // Nothing can be done about a file that cannot be removed; its name says what it is.
            let _ = fs::remove_file(partial);
        }
    }
}

/// The name a file has while it is being written.
fn partial_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}
