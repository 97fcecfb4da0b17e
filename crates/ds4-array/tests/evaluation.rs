//! What evaluation promises: nothing runs early, everything runs once, memory is freed and reused as soon as it can be.
#![allow(clippy::unwrap_used, reason = "tests only")]

use ds4_array::{Array, ArrayError, DType, Device, Event, Stream, async_eval, eval, ops};
use proptest::prelude::*;

fn stream() -> Stream {
    Stream::new(&Device::reference())
}

fn vector(stream: &Stream, values: &[f32]) -> Array {
    Array::from_slice(stream, values, &[values.len()]).unwrap()
}

#[test]
fn nothing_is_computed_before_somebody_asks() {
    let stream = stream();
    let x = vector(&stream, &[1.0, 2.0]);
    let y = ops::neg(&x).unwrap();
    assert!(x.is_evaluated() && !y.is_evaluated());
    let allocated = stream.device().memory().stats().active;
    assert_eq!(y.to_vec::<f32>().unwrap(), [-1.0, -2.0]);
    assert!(y.is_evaluated() && stream.device().memory().stats().active > allocated);
}

#[test]
fn an_evaluated_array_is_not_computed_again() {
    let stream = stream();
    let y = ops::exp(&vector(&stream, &[0.0; 1000])).unwrap();
    eval(&[&y]).unwrap();
    let key = y.storage_key();
    eval(&[&y, &ops::neg(&y).unwrap()]).unwrap();
    assert_eq!(y.storage_key(), key);
}

#[test]
fn a_long_chain_needs_no_more_memory_than_a_short_one() {
    let stream = stream();
    let memory = stream.device().memory();
    let chain = |length: usize| {
        let mut x = ops::fill(&stream, [1 << 16], DType::F32, 1.0);
        for _ in 0..length {
            // Softmax never writes in place: each link needs a buffer of its own while its input is read.
            x = ops::softmax(&x).unwrap();
        }
        memory.reset_peak();
        eval(&[&x]).unwrap();
        memory.stats().peak
    };
    let short = chain(2);
    assert_eq!(chain(200), short, "inputs are freed after their last use");
    assert!(short >= 2 * (4 << 16));
}

#[test]
fn an_input_that_nobody_holds_is_written_in_place() {
    let stream = stream();
    let memory = stream.device().memory();
    let x = ops::fill(&stream, [1 << 16], DType::F32, 2.0);
    let y = ops::neg(&ops::exp(&ops::neg(&x).unwrap()).unwrap()).unwrap();
    drop(x);
    memory.reset_peak();
    eval(&[&y]).unwrap();
    assert_eq!(memory.stats().peak, 4 << 16, "one buffer serves the whole chain");
}

#[test]
fn an_input_that_somebody_holds_is_left_alone() {
    let stream = stream();
    let x = vector(&stream, &[1.0, 2.0]);
    let held = ops::neg(&x).unwrap();
    let y = ops::exp(&held).unwrap();
    let view = ops::slice_rows(&held, 1, 1).unwrap();
    eval(&[&y, &view]).unwrap();
    assert_eq!(held.to_vec::<f32>().unwrap(), [-1.0, -2.0]);
    assert_eq!(view.to_vec::<f32>().unwrap(), [-2.0]);
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

#[test]
fn a_view_protects_its_storage_after_the_array_is_gone() {
    let stream = stream();
    let base = ops::neg(&vector(&stream, &[1.0, 2.0, 3.0])).unwrap();
    let view = ops::slice_rows(&base, 0, 3).unwrap();
    let part = ops::slice_rows(&base, 1, 2).unwrap();
    eval(&[&view, &part]).unwrap();
    drop(view);
    let changed = ops::exp(&base).unwrap();
    drop(base);
    eval(&[&changed]).unwrap();
    assert_eq!(part.to_vec::<f32>().unwrap(), [-2.0, -3.0]);
}

#[test]
fn reshapes_and_slices_share_storage() {
    let stream = stream();
    let x = Array::from_slice(&stream, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    let reshaped = ops::reshape(&x, [3, 2]).unwrap();
    let column = ops::slice_columns(&x, 1, 1).unwrap();
    eval(&[&reshaped, &column]).unwrap();
    assert_eq!(reshaped.storage_key(), x.storage_key());
    assert_eq!(column.storage_key(), x.storage_key());
    // A view with gaps cannot be reshaped in place: it is copied.
    let turned = ops::reshape(&column, [2]).unwrap();
    assert_eq!(turned.to_vec::<f32>().unwrap(), [2.0, 5.0]);
    assert_ne!(turned.storage_key(), x.storage_key());
}

#[test]
fn a_cache_append_copies_only_if_a_snapshot_holds_the_page() {
    let stream = stream();
    let mut page = ops::fill(&stream, [4, 1], DType::F32, 0.0);
    let row = |value: f32| Array::from_slice(&stream, &[value], &[1, 1]).unwrap();
    page = ops::slice_update(&page, &row(1.0), 0).unwrap();
    eval(&[&page]).unwrap();
    let key = page.storage_key();
    page = ops::slice_update(&page, &row(2.0), 1).unwrap();
    eval(&[&page]).unwrap();
    assert_eq!(page.storage_key(), key, "written in place");
    let snapshot = page.clone();
    page = ops::slice_update(&page, &row(3.0), 2).unwrap();
    eval(&[&page]).unwrap();
    assert_ne!(page.storage_key(), key, "copied on write");
    assert_eq!(snapshot.to_vec::<f32>().unwrap(), [1.0, 2.0, 0.0, 0.0]);
    assert_eq!(page.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 0.0]);
}

#[test]
fn dropping_a_deep_graph_does_not_exhaust_the_stack() {
    let stream = stream();
    let mut x = vector(&stream, &[1.0]);
    for _ in 0..500_000 {
        x = ops::neg(&x).unwrap();
    }
    drop(x);
}

#[test]
fn the_memory_limit_fails_an_evaluation_and_the_stream_goes_on() {
    let stream = stream();
    stream.device().memory().set_limit(1 << 20);
    let large = ops::exp(&ops::fill(&stream, [1 << 20], DType::F32, 1.0)).unwrap();
    assert!(matches!(eval(&[&large]), Err(ArrayError::OutOfMemory { .. })));
    assert_eq!(
        large.to_vec::<f32>(),
        Err(ArrayError::OutOfMemory { requested: 4 << 20, active: 0, limit: 1 << 20 })
    );
    assert_eq!(ops::neg(&vector(&stream, &[1.0])).unwrap().to_vec::<f32>().unwrap(), [-1.0]);
}

#[test]
fn a_panicking_kernel_is_an_error_and_the_stream_goes_on() {
    let stream = stream();
    let values = Array::from_slice(&stream, &[1.0f32, 2.0], &[1, 2]).unwrap();
    let wrong = Array::from_slice(&stream, &[7u32], &[1, 1]).unwrap();
    let picked = ops::take_along(&values, &wrong).unwrap();
    assert!(matches!(eval(&[&picked]), Err(ArrayError::Panicked { .. })));
    assert!(matches!(
        async_eval(&[&ops::take_along(&values, &wrong).unwrap()]).wait(),
        Err(ArrayError::Panicked { .. })
    ));
    assert_eq!(ops::neg(&values).unwrap().to_vec::<f32>().unwrap(), [-1.0, -2.0]);
}

#[test]
fn asynchronous_work_is_waited_for_when_it_is_used() {
    let stream = stream();
    let x = ops::exp(&ops::fill(&stream, [1 << 18], DType::F32, 0.0)).unwrap();
    let event = async_eval(&[&x]);
    // Built on an array that may still be on its way.
    let y = ops::neg(&x).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap()[0], -1.0);
    event.wait().unwrap();
    assert!(event.is_done() && x.is_evaluated());
    stream.synchronize();
}

#[test]
fn streams_wait_for_one_another_where_they_depend() {
    let device = Device::reference();
    let (a, b) = (Stream::new(&device), Stream::new(&device));
    let mut x = ops::fill(&a, [1 << 12], DType::F32, 0.0);
    let one_a = vector(&a, &[1.0]);
    let one_b = vector(&b, &[1.0]);
    for i in 0..40 {
        // The stream of the first argument computes the result: the chain changes sides at every step.
        let one = if i % 2 == 0 { &one_b } else { &one_a };
        let lifted = ops::neg(&ops::neg(one).unwrap()).unwrap();
        let sum = ops::add(&lifted, &ops::slice_rows(&x, 0, 1).unwrap()).unwrap();
        x = ops::concatenate(&[&sum; 2], 0).unwrap();
    }
    let events: Vec<Event> = vec![async_eval(&[&x])];
    assert_eq!(x.to_vec::<f32>().unwrap(), [40.0, 40.0]);
    events.iter().for_each(|event| event.wait().unwrap());
}

#[test]
fn threads_may_evaluate_overlapping_graphs() {
    let stream = stream();
    let shared = ops::exp(&ops::fill(&stream, [1 << 14], DType::F32, 0.0)).unwrap();
    std::thread::scope(|scope| {
        for i in 0..8u8 {
            let shared = shared.clone();
            scope.spawn(move || {
                let mine = ops::scale(&shared, f32::from(i)).unwrap();
                assert_eq!(mine.to_vec::<f32>().unwrap()[0], f32::from(i));
            });
        }
    });
}

proptest! {
    /// A random graph gives what plain arithmetic gives, whatever its shape, and leaves no memory behind.
    #[test]
    fn random_graphs_compute_what_plain_arithmetic_computes(
        steps in proptest::collection::vec((0usize..4, any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..120),
        wanted in any::<prop::sample::Index>(),
    ) {
        let stream = stream();
        let mut arrays = vec![vector(&stream, &[1.0, -2.0]), vector(&stream, &[0.5, 3.0])];
        let mut plain = vec![[1.0f32, -2.0], [0.5, 3.0]];
        for (kind, a, b) in steps {
            let (a, b) = (a.index(arrays.len()), b.index(arrays.len()));
            let (x, y) = (plain[a], plain[b]);
            let (array, value) = match kind {
                0 => (ops::add(&arrays[a], &arrays[b]), [x[0] + y[0], x[1] + y[1]]),
                1 => (ops::minimum(&arrays[a], &arrays[b]), [x[0].min(y[0]), x[1].min(y[1])]),
                2 => (ops::neg(&arrays[a]), [-x[0], -x[1]]),
                _ => (ops::relu(&arrays[a]), [x[0].max(0.0), x[1].max(0.0)]),
            };
            arrays.push(array.unwrap());
            plain.push(value);
        }
        let wanted = wanted.index(arrays.len());
        let result = arrays[wanted].clone();
        let half = arrays.len() / 2;
        arrays.truncate(half);
        prop_assert_eq!(result.to_vec::<f32>().unwrap(), plain[wanted].to_vec());
        for (array, value) in arrays.iter().zip(&plain) {
            prop_assert_eq!(array.to_vec::<f32>().unwrap(), value.to_vec());
        }
        drop((arrays, result));
        prop_assert_eq!(stream.device().memory().stats().active, 0);
    }
}
