//! Weights by dotted path, loaded strictly: every tensor that a model asks for must be there with the right shape, and
//! none may be left over. Problems are collected, so that one error lists all of them.

mod blocks;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ds4_array::ops::{self, Weight};
use ds4_array::{Array, ArrayError, DType, Stream};
use ds4_weights::{Checkpoint, Tensor};

/// One thing that is wrong with a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamProblem {
    /// The model needs it.
    Missing {
        /// Full name in the model's own naming.
        name: String,
        /// Shape that it should have.
        shape: Vec<usize>,
    },
    /// The model has no place for it.
    Surplus {
        /// Full name in the file.
        name: String,
    },
    /// It has another shape or type than the configuration says.
    Wrong {
        /// Full name in the file.
        name: String,
        /// What the configuration needs.
        expected: String,
        /// What is there.
        actual: String,
    },
    /// Two tensors mean the same parameter.
    Twice {
        /// Their names in the files.
        names: [String; 2],
    },
}

impl fmt::Display for ParamProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { name, shape } => write!(f, "missing: {name} {shape:?}"),
            Self::Surplus { name } => write!(f, "surplus: {name}"),
            Self::Wrong { name, expected, actual } => {
                write!(f, "wrong: {name} must be {expected}, is {actual}")
            }
            Self::Twice { names: [a, b] } => write!(f, "twice: {a} and {b} are the same parameter"),
        }
    }
}

/// Why a checkpoint cannot be loaded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamError {
    /// Tensors do not fit the configuration.
    #[error(
        "the checkpoint does not fit its config.json, {} problem{}:\n  {}",
        .0.len(), if .0.len() == 1 { "" } else { "s" }, lines(.0)
    )]
    Problems(Vec<ParamProblem>),
    /// A tensor could not become an array.
    #[error(transparent)]
    Array(#[from] ArrayError),
}

fn lines(problems: &[ParamProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
}

/// The tensors of a checkpoint on their way into a model.
pub struct Params<'a> {
    stream: Stream,
    /// By the model's own name.
    tensors: BTreeMap<String, &'a Tensor>,
    taken: RefCell<BTreeSet<String>>,
    problems: RefCell<Vec<ParamProblem>>,
    failed: RefCell<Option<ArrayError>>,
    parameters: Cell<u64>,
    /// Only names and shapes are checked; arrays are stand-ins.
    dry: bool,
}

impl<'a> Params<'a> {
    /// Takes all tensors of `checkpoint` under the names that `rename` gives them; `None` leaves a tensor out.
    pub fn new(stream: &Stream, checkpoint: &'a Checkpoint, rename: impl Fn(&str) -> Option<String>) -> Self {
        let mut tensors: BTreeMap<String, &Tensor> = BTreeMap::new();
        let mut problems = Vec::new();
        for tensor in checkpoint.tensors() {
            let Some(name) = rename(&tensor.name) else { continue };
            if let Some(other) = tensors.insert(name, tensor) {
                problems.push(ParamProblem::Twice { names: [other.name.clone(), tensor.name.clone()] });
            }
        }
        Self {
            stream: stream.clone(),
            tensors,
            taken: RefCell::default(),
            problems: RefCell::new(problems),
            failed: RefCell::default(),
            parameters: Cell::new(0),
            dry: false,
        }
    }

    /// Checks names and shapes and counts parameters, but leaves the tensors alone: the model cannot run.
    pub fn dry(mut self) -> Self {
        self.dry = true;
        self
    }

    /// The names' common root.
    pub fn root(&self) -> Scope<'_> {
        Scope { params: self, prefix: String::new() }
    }

    /// Checks that nothing was missing, wrong or left over. Returns the number of parameters.
    pub fn finish(self) -> Result<u64, ParamError> {
        let taken = self.taken.into_inner();
        let mut problems = self.problems.into_inner();
        let surplus = self.tensors.iter().filter(|(name, _)| !taken.contains(*name));
        problems.extend(surplus.map(|(_, tensor)| ParamProblem::Surplus { name: tensor.name.clone() }));
        if !problems.is_empty() {
            return Err(ParamError::Problems(problems));
        }
        match self.failed.into_inner() {
            Some(error) => Err(error.into()),
            None => Ok(self.parameters.get()),
        }
    }

    fn missing(&self, name: &str, shape: &[usize]) {
        self.problems
            .borrow_mut()
            .push(ParamProblem::Missing { name: name.to_owned(), shape: shape.to_vec() });
    }

    fn wrong(&self, tensor: &Tensor, expected: String) {
        let actual = format!("{} {:?}", tensor.dtype, tensor.shape);
        self.problems.borrow_mut().push(ParamProblem::Wrong { name: tensor.name.clone(), expected, actual });
    }

    /// Takes a tensor if it is there with this shape; the stored shape may have further axes of size 1.
    fn take(
        &self,
        name: &str,
        shape: &[usize],
        fits: impl Fn(DType) -> bool,
        kind: &str,
    ) -> Option<&'a Tensor> {
        let Some(&tensor) = self.tensors.get(name) else {
            self.missing(name, shape);
            return None;
        };
        self.taken.borrow_mut().insert(name.to_owned());
        let squeezed = |shape: &[usize]| shape.iter().copied().filter(|&size| size != 1).collect::<Vec<_>>();
        if squeezed(&tensor.shape) != squeezed(shape) || !fits(tensor.dtype) {
            self.wrong(tensor, format!("{kind} {shape:?}"));
            return None;
        }
        Some(tensor)
    }

    fn count(&self, parameters: usize) {
        self.parameters.set(self.parameters.get() + parameters as u64);
    }

    /// A result, or a stand-in of the right shape while loading goes on to find further problems.
    fn or_stand_in(&self, array: Option<Result<Array, ArrayError>>, shape: &[usize]) -> Array {
        match array {
            Some(Ok(array)) => return array,
            Some(Err(error)) => {
                self.failed.borrow_mut().get_or_insert(error);
            }
            None => {}
        }
        let shape = ds4_array::Shape::try_new(shape).unwrap_or(ds4_array::Shape::from([0]));
        ops::fill(&self.stream, shape, DType::F32, 0.0)
    }

    fn external(&self, tensor: &Tensor, shape: &[usize]) -> Result<Array, ArrayError> {
        if self.dry {
            let shape = ds4_array::Shape::try_new(shape).unwrap_or(ds4_array::Shape::from([0]));
            return Ok(ops::fill(&self.stream, shape, tensor.dtype, 0.0));
        }
        Array::from_external(&self.stream, Arc::new(tensor.bytes.clone()), tensor.dtype, shape)
    }
}

/// A place in the tree of names.
pub struct Scope<'a> {
    params: &'a Params<'a>,
    prefix: String,
}

impl<'a> Scope<'a> {
    /// The place `name` below this one; names may have dots.
    pub fn at(&self, name: impl fmt::Display) -> Scope<'a> {
        Scope { params: self.params, prefix: self.full(&name.to_string()) }
    }

    /// The stream that arrays are made on.
    pub fn stream(&self) -> &Stream {
        &self.params.stream
    }

    fn full(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}.{name}", self.prefix) }
    }

    /// A tensor that may be there or not, without taking it.
    pub fn find(&self, name: &str) -> Option<&'a Tensor> {
        self.params.tensors.get(&self.full(name)).copied()
    }

    /// Whether any tensor lies below this place.
    pub fn exists(&self) -> bool {
        let prefix = format!("{}.", self.prefix);
        self.params.tensors.range(prefix.clone()..).next().is_some_and(|(name, _)| name.starts_with(&prefix))
    }

    /// Whether there is a weight of this name, in any format.
    pub fn has_weight(&self, name: &str) -> bool {
        self.find(name).is_some() || self.find(&format!("{name}.weight")).is_some()
    }

    /// A float array of this shape in its stored format.
    pub fn array(&self, name: &str, shape: &[usize]) -> Array {
        let tensor = self.params.take(&self.full(name), shape, DType::is_float, "floats");
        self.params.count(shape.iter().product());
        self.params.or_stand_in(tensor.map(|tensor| self.params.external(tensor, shape)), shape)
    }

    /// The filters of depthwise convolutions below one another, each stored as [C, 1, K] or [C, K, 1]: [K, N * C], tap by tap,
    /// as float32.
    pub fn conv1d(&self, names: &[&str], channels: usize, kernel: usize) -> Array {
        let all = names.len() * channels;
        let mut by_tap = vec![0.0; kernel * all];
        let mut complete = true;
        for (i, name) in names.iter().enumerate() {
            let tensor = self.params.take(&self.full(name), &[channels, kernel], DType::is_float, "floats");
            self.params.count(channels * kernel);
            let Some(floats) = tensor.and_then(Tensor::floats) else {
                complete = false;
                continue;
            };
            for (at, value) in floats.to_f32().into_iter().enumerate() {
                by_tap[at % kernel * all + i * channels + at / kernel] = value;
            }
        }
        let shape = [kernel, all];
        let filters = complete.then(|| Array::from_slice(&self.params.stream, &by_tap, &shape));
        self.params.or_stand_in(filters, &shape)
    }

    /// A small float array, converted to float32 and mapped.
    pub fn map_f32(&self, name: &str, shape: &[usize], map: impl Fn(f32) -> f32) -> Array {
        let tensor = self.params.take(&self.full(name), shape, DType::is_float, "floats");
        self.params.count(shape.iter().product());
        let mapped = tensor.and_then(Tensor::floats).map(|floats| {
            let values: Vec<f32> = floats.to_f32().into_iter().map(&map).collect();
            Array::from_slice(&self.params.stream, &values, shape)
        });
        self.params.or_stand_in(mapped, shape)
    }

    /// A small list, converted to float32 and mapped, in which every value stands `times` times in a row.
    pub fn spread_f32(&self, name: &str, count: usize, times: usize, map: impl Fn(f32) -> f32) -> Array {
        let tensor = self.params.take(&self.full(name), &[count], DType::is_float, "floats");
        self.params.count(count);
        let spread = tensor.and_then(Tensor::floats).map(|floats| {
            let mapped = floats.to_f32().into_iter().map(&map);
            let values: Vec<f32> = mapped.flat_map(|value| std::iter::repeat_n(value, times)).collect();
            Array::from_slice(&self.params.stream, &values, &[count * times])
        });
        self.params.or_stand_in(spread, &[count * times])
    }

    /// An optional list of integers.
    pub fn integers(&self, name: &str, count: usize) -> Option<Vec<i64>> {
        self.find(name)?;
        let tensor = self.params.take(&self.full(name), &[count], |dtype| dtype == DType::I64, "I64")?;
        tensor.i64s().map(<[i64]>::to_vec)
    }

    /// A table of ids below `end`, stored as 32-bit or 64-bit integers.
    pub fn ids(&self, name: &str, shape: &[usize], end: usize) -> Vec<u32> {
        let count = shape.iter().product();
        let integer = |dtype| matches!(dtype, DType::I64 | DType::I32);
        let Some(tensor) = self.params.take(&self.full(name), shape, integer, "I32 or I64") else {
            return vec![0; count];
        };
        let bytes = tensor.bytes.as_ref();
        let ids: Vec<i64> = match tensor.dtype {
            DType::I32 => bytes.as_chunks().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect(),
            _ => bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
        };
        if let Some(id) = ids.iter().find(|&&id| id < 0 || id >= end as i64) {
            let (name, expected) = (tensor.name.clone(), format!("ids from 0 to {}", end.saturating_sub(1)));
            let problem = ParamProblem::Wrong { name, expected, actual: format!("one of {id}") };
            self.params.problems.borrow_mut().push(problem);
            return vec![0; count];
        }
        ids.into_iter().map(|id| id as u32).collect()
    }

    /// A large table that is read row by row and never becomes an array.
    pub fn table(&self, name: &str, shape: &[usize], dtype: DType) -> Option<Tensor> {
        self.take_table(name, shape, |actual| actual == dtype, dtype.name())
    }

    /// The same, in any float format.
    pub fn float_table(&self, name: &str, shape: &[usize]) -> Option<Tensor> {
        self.take_table(name, shape, DType::is_float, "floats")
    }

    fn take_table(
        &self,
        name: &str,
        shape: &[usize],
        fits: impl Fn(DType) -> bool,
        kind: &str,
    ) -> Option<Tensor> {
        let tensor = self.params.take(&self.full(name), shape, fits, kind)?;
        tensor.advise_random();
        self.params.count(shape.iter().product());
        Some(tensor.clone())
    }

    /// The weight matrix `name.weight` [n, k]: floats, or quantised with `name.scales` and `name.biases`.
    pub fn weight(&self, name: &str, n: usize, k: usize) -> Weight {
        self.weight_of(name, &[n, k])
    }

    /// One matrix for each expert, [E, n, k], named with or without `.weight`.
    pub fn expert_weight(&self, name: &str, shape: [usize; 3]) -> Weight {
        self.weight_of(name, &shape)
    }

    fn weight_of(&self, name: &str, shape: &[usize]) -> Weight {
        if let Some(scales) = self.find(&format!("{name}.scales")) {
            return self.affine(name, shape, scales);
        }
        if self.is_block(name) {
            return self.block_weight(name, shape);
        }
        let name = if self.find(name).is_some() { name.to_owned() } else { format!("{name}.weight") };
        Weight::dense(self.array(&name, shape))
    }

    /// Bits and group size follow from the shapes, which is how MLX checkpoints with mixed settings are read.
    fn affine(&self, name: &str, shape: &[usize], scales: &Tensor) -> Weight {
        let k = shape.last().copied().unwrap_or(1);
        let packed_width = |packed: &Tensor| packed.shape.last().copied().unwrap_or(0);
        let bits = self.find(&format!("{name}.weight")).map_or(4, |packed| packed_width(packed) * 32 / k);
        let group = k / packed_width(scales).max(1);
        let with_width = |width: usize| {
            let mut sizes = shape.to_vec();
            sizes[shape.len() - 1] = width;
            sizes
        };
        let (packed, groups) = (with_width(k * bits / 32), with_width(k / group.max(1)));
        let part = |part: &str, shape: &[usize], fits: fn(DType) -> bool, kind| {
            let full = self.full(&format!("{name}.{part}"));
            let tensor = self.params.take(&full, shape, fits, kind);
            tensor.map(|tensor| self.params.external(tensor, shape))
        };
        let weight = part("weight", &packed, |dtype| dtype == DType::U32, "U32");
        let scales = part("scales", &groups, DType::is_float, "floats");
        let biases = part("biases", &groups, DType::is_float, "floats");
        self.params.count(shape.iter().product());
        let (Some(weight), Some(scales), Some(biases)) = (weight, scales, biases) else {
            return Weight::dense(self.params.or_stand_in(None, shape));
        };
        let made = weight.and_then(|weight| Weight::affine(weight, scales?, biases?, bits as u32, group));
        made.unwrap_or_else(|error| Weight::dense(self.params.or_stand_in(Some(Err(error)), shape)))
    }

    /// One [E, P * n, k] matrix from separate tensors `experts.E.PROJECTION` for each expert: the projections' rows one
    /// after the other. Copies the weights, and lets go of the mapped ones.
    pub fn stacked(&self, experts: usize, projections: &[&str], n: usize, k: usize) -> Weight {
        let names: Vec<String> = (0..experts)
            .flat_map(|expert| {
                projections.iter().map(move |projection| format!("experts.{expert}.{projection}"))
            })
            .collect();
        let shape = [experts, projections.len() * n, k];
        let Some(first) = names.first() else { return Weight::dense(self.params.or_stand_in(None, &shape)) };
        if self.is_block(first) {
            return self.stacked_blocks(&names, n, shape);
        }
        let quantised = self.find(&format!("{first}.scales")).is_some();
        let parts: &[&str] = if quantised { &["weight", "scales", "biases"] } else { &["weight"] };
        self.params.count(shape.iter().product());
        let mut arrays = Vec::new();
        for part in parts {
            arrays.extend(self.stack_part(&names, part, n, k, &shape));
        }
        match <[Array; 3]>::try_from(arrays) {
            Ok([weight, scales, biases]) => {
                let bits = weight.shape().width() * 32 / k;
                let group = k / scales.shape().width().max(1);
                let made = Weight::affine(weight, scales, biases, bits as u32, group);
                made.unwrap_or_else(|error| Weight::dense(self.params.or_stand_in(Some(Err(error)), &shape)))
            }
            Err(mut arrays) => {
                Weight::dense(arrays.pop().unwrap_or_else(|| self.params.or_stand_in(None, &shape)))
            }
        }
    }

    fn stack_part(
        &self,
        names: &[String],
        part: &str,
        n: usize,
        k: usize,
        shape: &[usize; 3],
    ) -> Option<Array> {
        let first = self.find(&format!("{}.{part}", names[0]));
        let (width, dtype) =
            first.map_or((k, DType::F32), |t| (t.shape.last().copied().unwrap_or(k), t.dtype));
        let width = if part == "weight" && dtype.is_float() { k } else { width };
        let size = if self.params.dry { 0 } else { names.len() * n * width * dtype.size() };
        let mut bytes = Vec::with_capacity(size);
        let mut complete = true;
        for name in names {
            let full = self.full(&format!("{name}.{part}"));
            match self.params.take(&full, &[n, width], |actual| actual == dtype, dtype.name()) {
                Some(_) if self.params.dry => {}
                Some(tensor) => {
                    bytes.extend_from_slice(tensor.bytes.as_ref());
                    tensor.bytes.release();
                }
                None => complete = false,
            }
        }
        let stacked = [shape[0], shape[1], width];
        let array = (complete && !self.params.dry)
            .then(|| Array::from_external(&self.params.stream, Arc::new(bytes), dtype, &stacked));
        let stand_in = || {
            let shape = ds4_array::Shape::from(stacked);
            Ok(ops::fill(&self.params.stream, shape, dtype, 0.0))
        };
        Some(self.params.or_stand_in(array.or_else(|| complete.then(stand_in)), &stacked))
    }
}
