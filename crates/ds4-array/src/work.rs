//! How much a primitive has to do: floating-point operations, and bytes that must come from memory.
//!
//! Counted are what dominates a language model: products with weights, attention and recurrences. Bytes are those of weights,
//! caches and states; activations stay in the processor's caches and element-wise work hides behind the rest, so both count
//! as nothing. The figures are floors to compare times with, not predictions.

use ds4_dtype::DType;

use crate::array::{Array, Node, Operation};
use crate::primitive::{AttentionSpec, HeadSpec, IndexSpec, Primitive, WeightFormat, WindowedSpec};

/// Operations on floats, a multiply-add counting two, and bytes of weights, caches and states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read, and written if they are state.
    pub bytes: u64,
}

impl Work {
    fn new(flops: usize, bytes: usize) -> Self {
        Self { flops: flops as u64, bytes: bytes as u64 }
    }
}

impl std::ops::AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.flops += other.flops;
        self.bytes += other.bytes;
    }
}

/// What to call the node in a table, and the sizes worth knowing of it.
pub(crate) fn label(operation: &Operation, node: &Node) -> (String, Vec<usize>) {
    let name = format!("{:?}", operation.primitive);
    let weight = match &operation.primitive {
        Primitive::Linear { .. } | Primitive::GatherRows(_) => Some(1),
        Primitive::GroupedLinear { own_rows, .. } => Some(if *own_rows { 2 } else { 3 }),
        _ => None,
    };
    let short = || name.split([' ', '{']).next().unwrap_or_default().to_owned();
    match (&operation.primitive, weight) {
        (Primitive::Unary(_) | Primitive::Binary(..) | Primitive::Reduce(_), _) => {
            (name, node.shape.to_vec())
        }
        (_, Some(at)) => {
            let mut shape = operation.inputs[at].shape().to_vec();
            if let (Some(width), Some(k)) = (shape.last_mut(), inner_width(operation, node)) {
                *width = k;
            }
            if let Primitive::Linear { format, .. } = operation.primitive {
                shape[0] = all_columns(&operation.inputs, format);
            }
            (short().split('(').next().unwrap_or_default().to_owned(), shape)
        }
        _ => (short().split('(').next().unwrap_or_default().to_owned(), node.shape.to_vec()),
    }
}

/// Length of the sums of a product with a weight; packed weights do not show it.
fn inner_width(operation: &Operation, node: &Node) -> Option<usize> {
    match operation.primitive {
        Primitive::GatherRows(_) => Some(node.shape.width()),
        _ => operation.inputs.first().map(|x| x.shape().width()),
    }
}

/// The work of a node whose inputs are there.
pub(crate) fn count(operation: &Operation, node: &Node) -> Work {
    let inputs = &operation.inputs;
    let outputs = node.shape.elements();
    match &operation.primitive {
        Primitive::Linear { format, .. } => {
            Work::new(2 * inputs[0].shape().elements() * all_columns(inputs, *format), bytes(&inputs[1..]))
        }
        Primitive::GroupedLinear { own_rows, .. } => {
            let weight = &inputs[if *own_rows { 2 } else { 3 }..];
            let experts = weight[0].shape()[0].max(1);
            let read = bytes(weight) / experts * visited(&inputs[1]);
            Work::new(2 * outputs * inputs[0].shape().width(), read)
        }
        Primitive::HeadLinear(_, spec) => head_linear(inputs, node, *spec),
        Primitive::GatherRows(_) => {
            let rows = inputs[1].shape()[0].max(1);
            Work::new(0, bytes(&inputs[1..]) / rows * inputs[0].shape().elements())
        }
        Primitive::Attention(spec) => attention(inputs, node, *spec),
        Primitive::WindowedAttention(spec) => windowed(inputs, node, *spec),
        Primitive::IndexSelect(spec) => index_select(inputs, *spec),
        Primitive::GatedDelta { .. } => {
            // Decay 1, state times key 2, rank-one update 2, state times query 2, for each element and token.
            let elements = inputs.get(5).map_or(0, |state| state.shape().elements());
            Work::new(7 * elements * inputs[0].shape()[0], 2 * bytes(&inputs[5..]))
        }
        Primitive::CausalConv { .. } => Work::new(2 * outputs * inputs[1].shape()[0], 0),
        _ => Work::default(),
    }
}

/// Columns of all products of a linear node.
fn all_columns(inputs: &[Array], format: WeightFormat) -> usize {
    inputs[1..].iter().step_by(format.parts()).map(|part| part.shape()[0]).sum()
}

fn bytes(arrays: &[Array]) -> usize {
    arrays.iter().map(Array::bytes).sum()
}

/// Experts that have at least one row.
fn visited(offsets: &Array) -> usize {
    let count = |bytes: &[u8]| {
        let offsets: &[u32] = bytemuck::cast_slice(bytes);
        offsets.windows(2).filter(|pair| pair[1] > pair[0]).count()
    };
    match offsets.0.data() {
        Some(data) if data.is_dense(offsets.shape()) => {
            let start = data.offset * DType::U32.size();
            count(&data.storage.bytes()[start..start + offsets.bytes()])
        }
        _ => 0,
    }
}

fn head_linear(inputs: &[Array], node: &Node, spec: HeadSpec) -> Work {
    let used = spec.rows * node.shape[1];
    let stored = inputs[1].shape()[0].max(1);
    let inner = if spec.transposed { spec.rows } else { inputs[0].shape().width() };
    Work::new(2 * node.shape.elements() * inner, bytes(&inputs[1..]) * used / stored)
}

/// Keys that rows see without selection, all rows together.
fn causal_keys(first_position: usize, rows: usize) -> usize {
    rows * first_position + rows * (rows + 1) / 2
}

fn attention(inputs: &[Array], node: &Node, spec: AttentionSpec) -> Work {
    let (q, rows) = (inputs[0].shape(), node.shape[0]);
    let first_page = 1 + usize::from(spec.block.is_some());
    let Some(page) = inputs.get(first_page) else { return Work::default() };
    let held = spec.first_position + rows;
    let (seen, read) = match spec.block {
        Some(block) => {
            let chosen = (inputs[1].shape().width() * block).min(held);
            (rows * chosen, (rows * chosen).min(held))
        }
        None => (causal_keys(spec.first_position, rows), held),
    };
    // A key and a value of every key head.
    let width = page.shape()[1] * (q[2] + node.shape[2]) * page.dtype().size();
    Work::new(2 * seen * q[1] * (q[2] + node.shape[2]), read * width)
}

fn windowed(inputs: &[Array], node: &Node, spec: WindowedSpec) -> Work {
    let (rows, heads, width) = (node.shape[0], node.shape[1], node.shape[2]);
    let in_window = |row: usize| (spec.first_position + row + 1).min(spec.span);
    let entries = |row: usize| match spec.rate {
        Some(_) if spec.selects => inputs[2].shape().width(),
        Some(rate) => (spec.first_position + row + 1) / rate.max(1),
        None => 0,
    };
    let seen: usize = (0..rows).map(|row| in_window(row) + entries(row)).sum();
    let read = (spec.span + rows).min(spec.first_position + rows) + (0..rows).map(entries).max().unwrap_or(0);
    let size = inputs.last().map_or(0, |page| page.dtype().size());
    Work::new(4 * seen * heads * width, read * width * size)
}

fn index_select(inputs: &[Array], spec: IndexSpec) -> Work {
    let q = inputs[0].shape();
    let keys = inputs.last().map_or(0, |page| page.dtype().size());
    let blocks = (spec.first_position + q[0]) / spec.block.max(1);
    Work::new(2 * q[0] * q[1] * q[2] * blocks, blocks * q[2] * keys)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use crate::ops::{self, Weight};
    use crate::{Array, Device, Observer, Ran, Stream, eval};

    #[derive(Default)]
    struct Notes(Mutex<Vec<Ran>>);

    impl Observer for Notes {
        fn ran(&self, step: &Ran) {
            self.0.lock().unwrap().push(step.clone());
        }
    }

    fn watch(build: impl Fn(&Stream) -> Array) -> Vec<Ran> {
        let device = Device::reference();
        let notes = Arc::new(Notes::default());
        device.observe(Some(notes.clone()));
        eval(&[&build(&Stream::new(&device))]).unwrap();
        device.observe(None);
        eval(&[&build(&Stream::new(&device))]).unwrap();
        let notes = notes.0.lock().unwrap();
        notes.clone()
    }

    #[test]
    fn a_product_reads_its_weight_once_and_adds_two_operations_for_each_value_and_row() {
        let seen = watch(|stream| {
            let x = Array::from_slice(stream, &[1.0_f32; 3 * 8], &[3, 8]).unwrap();
            let w = Array::from_slice(stream, &[1.0_f32; 5 * 8], &[5, 8]).unwrap();
            ops::linear(&x, &Weight::dense(w)).unwrap()
        });
        assert_eq!(seen.len(), 1, "nothing is told after the observer has left");
        assert_eq!((seen[0].primitive.as_str(), seen[0].shape.as_slice()), ("Linear", &[5, 8][..]));
        assert_eq!((seen[0].work.flops, seen[0].work.bytes), (2 * 3 * 5 * 8, 5 * 8 * 4));
    }

    #[test]
    fn products_of_one_node_are_counted_together() {
        let seen = watch(|stream| {
            let array = |shape: &[usize]| {
                Array::from_slice(stream, &vec![1.0_f32; shape.iter().product()], shape).unwrap()
            };
            let (five, two) = (Weight::dense(array(&[5, 8])), Weight::dense(array(&[2, 8])));
            let [a, b] = ops::linears(&array(&[3, 8]), [&five, &two]).unwrap();
            ops::concatenate(&[&a, &b], 1).unwrap()
        });
        let product = seen.iter().find(|step| step.primitive == "Linear").unwrap();
        assert_eq!((product.work.flops, product.work.bytes), (2 * 3 * 7 * 8, 7 * 8 * 4));
        assert_eq!(product.shape, [7, 8]);
    }

    #[test]
    fn recurrences_and_convolutions_count_all_sequences() {
        let array = |stream: &Stream, shape: &[usize]| {
            Array::from_slice(stream, &vec![0.5_f32; shape.iter().product()], shape).unwrap()
        };
        let seen = watch(|stream| {
            let (q, v) = (array(stream, &[3, 1, 4]), array(stream, &[3, 2, 8]));
            let (g, states) =
                (array(stream, &[3, 2]), [array(stream, &[2, 4, 8]), array(stream, &[2, 4, 8])]);
            ops::gated_delta([&q, &q, &v, &g, &g], &states.each_ref(), [1, 2]).unwrap().0
        });
        assert_eq!((seen[0].work.flops, seen[0].work.bytes), (3 * 7 * 64, 2 * 2 * 64 * 4));
        let seen = watch(|stream| {
            let (x, weight) = (array(stream, &[3, 5]), array(stream, &[4, 5]));
            let histories = [array(stream, &[3, 5]), array(stream, &[3, 5])];
            ops::causal_conv1d(&x, &histories.each_ref(), [1, 2], &weight, 1, false).unwrap().0
        });
        assert_eq!(seen[0].work.flops, 2 * 3 * 5 * 4);
    }

    #[test]
    fn only_the_experts_that_have_rows_are_read() {
        let seen = watch(|stream| {
            let x = Array::from_slice(stream, &[1.0_f32; 2 * 4], &[2, 4]).unwrap();
            let ids = Array::from_slice(stream, &[6_u32, 1, 1, 2], &[2, 2]).unwrap();
            let order = ops::sort_by_expert(&ids, 8).unwrap();
            let w = Array::from_slice(stream, &[1.0_f32; 8 * 3 * 4], &[8, 3, 4]).unwrap();
            ops::grouped_linear(&x, Some(&order.rows), &order.offsets, &Weight::dense(w)).unwrap()
        });
        let product = seen.iter().find(|step| step.primitive == "GroupedLinear").unwrap();
        assert_eq!(product.work.bytes, 3 * 3 * 4 * 4);
        assert_eq!(product.work.flops, 2 * 4 * 3 * 4);
    }

    #[test]
    fn attention_counts_the_keys_that_each_row_sees() {
        let seen = watch(|stream| {
            let q = Array::from_slice(stream, &[1.0_f32; 2 * 4 * 8], &[2, 4, 8]).unwrap();
            let page = Array::from_slice(stream, &[1.0_f32; 16 * 2 * 8], &[16, 2, 8]).unwrap();
            let pages = [page];
            ops::attention(&q, &pages, &pages, None, 10, 1.0).unwrap()
        });
        // Rows at positions 10 and 11 see 11 and 12 keys; 12 keys and values of two heads are read.
        assert_eq!((seen[0].work.flops, seen[0].work.bytes), (23 * 4 * 4 * 8, 12 * 2 * 2 * 8 * 4));
    }
}
