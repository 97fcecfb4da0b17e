//! What a primitive sees of the node it computes: inputs as slices, outputs as buffers, and donated inputs.

use std::sync::Arc;

use bytemuck::Pod;
use ds4_cpu_kernels::{Cpu, StridedRows};
use ds4_dtype::{DType, Floats};

use crate::array::{Inputs, Node};
use crate::data::{Data, Storage};
use crate::memory::Buffer;
use crate::{ArrayError, Device, Shape};

use super::strided::gather_dense;

pub(super) struct Call<'a> {
    device: &'a Device,
    inputs: Inputs,
    node: &'a Node,
}

/// Bytes of an input in row-major order: its own, or a copy if it is a view with gaps.
pub(super) enum Dense<'a> {
    Own(&'a [u8]),
    Copy(Buffer),
}

impl Dense<'_> {
    /// The elements as `T`, whose size is that of the input's type.
    pub(super) fn as_slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(match self {
            Self::Own(bytes) => bytes,
            Self::Copy(buffer) => buffer.bytes(),
        })
    }
}

/// Rows of a float32 input.
pub(super) enum InputRows<'a> {
    Apart(StridedRows<'a>),
    Together(Dense<'a>),
}

impl InputRows<'_> {
    pub(super) fn strided(&self) -> StridedRows<'_> {
        match self {
            Self::Apart(rows) => *rows,
            Self::Together(dense) => StridedRows::dense(dense.as_slice()),
        }
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(device: &'a Device, inputs: Inputs, node: &'a Node) -> Self {
        Self { device, inputs, node }
    }

    pub(super) fn kernels(&self) -> &Cpu {
        self.device.kernels()
    }

    /// Shape of the node's value.
    pub(super) fn shape(&self) -> &Shape {
        &self.node.shape
    }

    pub(super) fn dtype(&self) -> DType {
        self.node.dtype
    }

    pub(super) fn len(&self) -> usize {
        self.inputs.len()
    }

    /// Shape of an input.
    pub(super) fn shape_of(&self, input: usize) -> &Shape {
        self.inputs[input].shape()
    }

    pub(super) fn dtype_of(&self, input: usize) -> DType {
        self.inputs[input].dtype()
    }

    /// The view that an input is.
    pub(super) fn view(&self, input: usize) -> Result<&Data, ArrayError> {
        self.inputs[input].0.data().ok_or(ArrayError::NotComputed)
    }

    /// An input's elements in row-major order.
    pub(super) fn dense(&self, input: usize) -> Result<Dense<'_>, ArrayError> {
        let (data, shape, dtype) = (self.view(input)?, self.shape_of(input), self.dtype_of(input));
        let bytes = shape.elements() * dtype.size();
        if data.is_dense(shape) {
            let start = data.offset * dtype.size();
            return Ok(Dense::Own(&data.storage.bytes()[start..start + bytes]));
        }
        let mut copy = self.device.memory().allocate(bytes)?;
        gather_dense(data, shape, dtype, copy.bytes_mut());
        Ok(Dense::Copy(copy))
    }

    /// The rows of a float32 input, which may lie apart at even distances; else its elements, together.
    pub(super) fn rows(&self, input: usize) -> Result<InputRows<'_>, ArrayError> {
        let (data, shape) = (self.view(input)?, self.shape_of(input));
        let Some(stride) = data.row_stride(shape) else {
            return Ok(InputRows::Together(self.dense(input)?));
        };
        let values: &[f32] = bytemuck::cast_slice(data.storage.bytes());
        Ok(InputRows::Apart(StridedRows::new(&values[data.offset..], shape.width(), stride)))
    }

    /// An input in whichever float format it has.
    pub(super) fn floats<'d>(&self, input: usize, dense: &'d Dense<'_>) -> Floats<'d> {
        match self.dtype_of(input) {
            DType::F16 => Floats::F16(dense.as_slice()),
            DType::BF16 => Floats::Bf16(dense.as_slice()),
            _ => Floats::F32(dense.as_slice()),
        }
    }

    /// A buffer for `elements` of the given type. Its contents are arbitrary: all of it must be written.
    pub(super) fn buffer(&self, elements: usize, dtype: DType) -> Result<Buffer, ArrayError> {
        self.device.memory().allocate(elements * dtype.size())
    }

    /// A new value of the node's shape and type, written by `write`.
    pub(super) fn produce<T: Pod>(&self, write: impl FnOnce(&mut [T])) -> Result<Data, ArrayError> {
        self.produce_as(self.shape(), self.dtype(), write)
    }

    pub(super) fn produce_as<T: Pod>(
        &self,
        shape: &Shape,
        dtype: DType,
        write: impl FnOnce(&mut [T]),
    ) -> Result<Data, ArrayError> {
        let mut buffer = self.buffer(shape.elements(), dtype)?;
        write(bytemuck::cast_slice_mut(buffer.bytes_mut()));
        Ok(Data::dense(Storage::Owned(buffer), shape))
    }

    /// The value of an input to write over: taken over if nobody else holds it or its storage, else a copy.
    pub(super) fn writable(&mut self, input: usize) -> Result<Data, ArrayError> {
        let (mut data, is_new) = self.writable_or_new(input)?;
        if is_new {
            let shape = *self.shape_of(input);
            let bytes = data.exclusive(shape.elements() * self.dtype_of(input).size());
            gather_dense(
                self.view(input)?,
                &shape,
                self.dtype_of(input),
                bytes.ok_or(ArrayError::NotComputed)?,
            );
        }
        Ok(data)
    }

    /// The same without the copy: whether the value is new, with arbitrary contents, and the input is still there.
    pub(super) fn writable_or_new(&mut self, input: usize) -> Result<(Data, bool), ArrayError> {
        let (shape, dtype) = (*self.shape_of(input), self.dtype_of(input));
        if let Some(node) = Arc::get_mut(&mut self.inputs[input].0)
            && let Some(mut data) = node.take_data()
        {
            if data.is_dense(&shape) && data.exclusive(shape.elements() * dtype.size()).is_some() {
                return Ok((data, false));
            }
            node.set_data(data);
        }
        let buffer = self.buffer(shape.elements(), dtype)?;
        Ok((Data::dense(Storage::Owned(buffer), &shape), true))
    }

    /// The elements of a value that [`writable`](Self::writable) returned.
    pub(super) fn elements_mut<'d, T: Pod>(
        data: &'d mut Data,
        shape: &Shape,
    ) -> Result<&'d mut [T], ArrayError> {
        let bytes = data.exclusive(shape.elements() * size_of::<T>()).ok_or(ArrayError::NotComputed)?;
        Ok(bytemuck::cast_slice_mut(bytes))
    }

    /// A further output of the first input.
    pub(super) fn take_extra(&self, index: usize) -> Result<Data, ArrayError> {
        let mut extras = self.inputs[0].0.extras();
        extras.get_mut(index - 1).and_then(Option::take).ok_or(ArrayError::NotComputed)
    }
}
