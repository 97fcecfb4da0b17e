//! The array handle and its graph node.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytemuck::Pod;
use ds4_dtype::{DType, Floats, bf16, f16};
use smallvec::SmallVec;

use crate::data::{Data, Storage};
use crate::primitive::Primitive;
use crate::stream::{Event, Stream};
use crate::{ArrayError, Shape};

/// A value that is computed when somebody needs it. Clones are the same array.
#[derive(Clone)]
pub struct Array(pub(crate) Arc<Node>);

/// One node of the graph: what to compute, or what was computed.
pub(crate) struct Node {
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
    pub(crate) stream: Stream,
    /// Present until the node runs. Taken whole, so that its inputs are free right after their last use.
    operation: Mutex<Option<Operation>>,
    /// Set when an evaluation has taken charge of the node.
    scheduled: OnceLock<Event>,
    data: OnceLock<Data>,
    /// Where the plan that claimed the node last has put it. Only planning reads it.
    place: AtomicUsize,
    /// Further outputs of the primitive, waiting for their `Output` nodes.
    extras: Mutex<Vec<Option<Data>>>,
}

pub(crate) struct Operation {
    pub(crate) primitive: Primitive,
    pub(crate) inputs: Inputs,
}

/// Most primitives have so few inputs that they need no memory of their own.
pub(crate) type Inputs = SmallVec<[Array; 4]>;

/// A Rust type that arrays can hold.
pub trait Element: Pod {
    /// Its element type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),*) => { $(impl Element for $type { const DTYPE: DType = DType::$dtype; })* };
}
elements!(f32 => F32, f16 => F16, bf16 => BF16, u8 => U8, u32 => U32, i32 => I32, i64 => I64);

impl Array {
    /// Copies `values` into a new array. Errors if the shape does not have as many elements.
    pub fn from_slice<T: Element>(
        stream: &Stream,
        values: &[T],
        shape: &[usize],
    ) -> Result<Self, ArrayError> {
        Self::from_bytes(stream, bytemuck::cast_slice(values), T::DTYPE, shape)
    }

    /// Copies dense bytes of `dtype` elements into a new array; they may lie anywhere. Errors if the length does not fit.
    pub fn from_bytes(
        stream: &Stream,
        bytes: &[u8],
        dtype: DType,
        shape: &[usize],
    ) -> Result<Self, ArrayError> {
        let shape = checked_shape(shape)?;
        check_bytes(&shape, dtype, bytes.len())?;
        let mut buffer = stream.device().memory().allocate(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        let data = Data::dense(Storage::Owned(buffer), &shape);
        Ok(Self::ready(stream, shape, dtype, data))
    }

    /// An array over bytes that somebody else holds, such as a mapped file; nothing is copied unless the bytes are
    /// not aligned for the type. Errors if the length does not fit.
    pub fn from_external(
        stream: &Stream,
        bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
        dtype: DType,
        shape: &[usize],
    ) -> Result<Self, ArrayError> {
        let shape = checked_shape(shape)?;
        let view: &[u8] = (*bytes).as_ref();
        check_bytes(&shape, dtype, view.len())?;
        let storage = if view.as_ptr().addr().is_multiple_of(dtype.size()) {
            Storage::External(bytes)
        } else {
            let mut buffer = stream.device().memory().allocate(view.len())?;
            buffer.bytes_mut().copy_from_slice(view);
            Storage::Owned(buffer)
        };
        let data = Data::dense(storage, &shape);
        Ok(Self::ready(stream, shape, dtype, data))
    }

    /// A node that computes `primitive` when it is needed, on the stream of its first input.
    pub(crate) fn lazy(
        stream: &Stream,
        shape: Shape,
        dtype: DType,
        primitive: Primitive,
        inputs: impl IntoIterator<Item = Array>,
    ) -> Self {
        let inputs = inputs.into_iter().collect();
        Self(Arc::new(Node {
            shape,
            dtype,
            stream: stream.clone(),
            operation: Mutex::new(Some(Operation { primitive, inputs })),
            scheduled: OnceLock::new(),
            data: OnceLock::new(),
            place: AtomicUsize::new(0),
            extras: Mutex::new(Vec::new()),
        }))
    }

    /// A further output of the array's primitive.
    pub(crate) fn further(&self, index: usize, shape: Shape, dtype: DType) -> Self {
        Self::lazy(self.stream(), shape, dtype, Primitive::Output { index }, [self.clone()])
    }

    /// A view of it in `shape`, at once, if it is evaluated and `view` can make one of its data.
    pub(crate) fn view_now(&self, shape: Shape, view: impl FnOnce(&Data) -> Option<Data>) -> Option<Self> {
        let data = view(self.0.data.get()?)?;
        Some(Self::ready(self.stream(), shape, self.dtype(), data))
    }

    fn ready(stream: &Stream, shape: Shape, dtype: DType, data: Data) -> Self {
        Self(Arc::new(Node {
            shape,
            dtype,
            stream: stream.clone(),
            operation: Mutex::new(None),
            scheduled: OnceLock::new(),
            data: OnceLock::from(data),
            place: AtomicUsize::new(0),
            extras: Mutex::new(Vec::new()),
        }))
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// Its element type.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The stream that computes it.
    pub fn stream(&self) -> &Stream {
        &self.0.stream
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> usize {
        self.0.shape.elements() * self.0.dtype.size()
    }

    /// Whether its value is there.
    pub fn is_evaluated(&self) -> bool {
        self.0.data.get().is_some()
    }

    /// Evaluates the array and copies its elements out, in row-major order.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, ArrayError> {
        if T::DTYPE != self.dtype() {
            return Err(ArrayError::DType {
                op: "to_vec",
                argument: "the array",
                expected: T::DTYPE.name(),
                actual: self.dtype(),
            });
        }
        let mut out = vec![T::zeroed(); self.shape().elements()];
        self.read_bytes(|bytes| bytemuck::cast_slice_mut(&mut out).copy_from_slice(bytes))?;
        Ok(out)
    }

    /// Evaluates the array and copies its elements, converted from any float format, into `out`.
    pub fn read_f32(&self, out: &mut Vec<f32>) -> Result<(), ArrayError> {
        let dtype = self.dtype();
        out.clear();
        self.read_bytes(|bytes| match dtype {
            DType::F32 => out.extend_from_slice(bytemuck::cast_slice(bytes)),
            DType::F16 => out.extend(Floats::F16(bytemuck::cast_slice(bytes)).to_f32()),
            DType::BF16 => out.extend(Floats::Bf16(bytemuck::cast_slice(bytes)).to_f32()),
            _ => {}
        })?;
        if dtype.is_float() {
            return Ok(());
        }
        Err(ArrayError::DType {
            op: "read_f32",
            argument: "the array",
            expected: "a float format",
            actual: dtype,
        })
    }

    /// Evaluates the array and hands its dense bytes to `read`. They are copied first only if the array is a view
    /// with gaps.
    pub fn read_bytes<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Result<R, ArrayError> {
        crate::eval(&[self])?;
        let data = self.0.data.get().ok_or(ArrayError::NotComputed)?;
        if data.is_dense(self.shape()) {
            let start = data.offset * self.dtype().size();
            return Ok(read(&data.storage.bytes()[start..start + self.bytes()]));
        }
        let mut copy = self.stream().device().memory().allocate(self.bytes())?;
        crate::backend::gather_dense(data, self.shape(), self.dtype(), copy.bytes_mut());
        Ok(read(copy.bytes()))
    }

    /// Bytes of the storage behind the array, which may be larger than the array if it is a view. `None` before
    /// evaluation. Two arrays with the same key share it.
    pub fn storage_key(&self) -> Option<(usize, usize)> {
        let storage = &self.0.data.get()?.storage;
        Some((Arc::as_ptr(storage).addr(), storage.bytes().len()))
    }
}

impl Node {
    pub(crate) fn operation(&self) -> MutexGuard<'_, Option<Operation>> {
        self.operation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn data(&self) -> Option<&Data> {
        self.data.get()
    }

    /// Takes the value out of a node that nobody else holds.
    pub(crate) fn take_data(&mut self) -> Option<Data> {
        self.data.take()
    }

    pub(crate) fn set_data(&self, data: Data) {
        // A node runs once: its operation was taken by whoever calls this.
        let _ = self.data.set(data);
    }

    pub(crate) fn scheduled(&self) -> &OnceLock<Event> {
        &self.scheduled
    }

    pub(crate) fn place(&self) -> usize {
        self.place.load(Ordering::Relaxed)
    }

    pub(crate) fn set_place(&self, place: usize) {
        self.place.store(place, Ordering::Relaxed);
    }

    pub(crate) fn extras(&self) -> MutexGuard<'_, Vec<Option<Data>>> {
        self.extras.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    /// Frees a long chain of unevaluated nodes in a loop: recursion would exhaust the stack.
    fn drop(&mut self) {
        let Some(operation) = self.operation.get_mut().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        let mut pending = operation.inputs;
        while let Some(Array(node)) = pending.pop() {
            if let Some(mut node) = Arc::into_inner(node)
                && let Some(operation) =
                    node.operation.get_mut().unwrap_or_else(PoisonError::into_inner).take()
            {
                pending.extend(operation.inputs);
            }
        }
    }
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = if self.is_evaluated() { "" } else { ", not evaluated" };
        write!(f, "Array({} {:?}{state})", self.dtype(), self.shape())
    }
}

fn checked_shape(shape: &[usize]) -> Result<Shape, ArrayError> {
    Shape::try_new(shape).ok_or(ArrayError::Value {
        op: "array",
        argument: "number of axes",
        expected: format!("at most {}", crate::shape::MAX_RANK),
        actual: shape.len(),
    })
}

fn check_bytes(shape: &Shape, dtype: DType, actual: usize) -> Result<(), ArrayError> {
    let expected = shape.elements() * dtype.size();
    if expected == actual { Ok(()) } else { Err(ArrayError::Bytes { op: "array", expected, actual }) }
}
