//! Memory that a decode step asks for, once everything that can be used again is there.
//!
//! One thread, so that all allocations are those of the thread that counts.
#![allow(clippy::unwrap_used, reason = "tests only")]

mod common;

use common::folder;
use ds4_array::{Device, Stream};
use ds4_models::{BatchSegment, CausalLm, LoadOptions, LogitRows, SequenceCache};
use ds4_weights::ModelFiles;

/// Heap allocations of a step that are accepted: nodes of the graph, their lists of inputs, and the tape. To be lowered with
/// every change that saves some, never raised without a reason.
const ACCEPTED: u64 = 1090;

/// Steps that are counted; fewer than until a page of a cache is full.
const STEPS: usize = 32;

fn step(model: &dyn CausalLm, cache: &mut SequenceCache, token: u32) {
    let mut batch = [BatchSegment { tokens: &[token], cache, logits: LogitRows::Last }];
    let logits = model.forward(&mut batch).unwrap().logits.unwrap();
    logits.read_bytes(|bytes| assert!(!bytes.is_empty())).unwrap();
}

#[test]
fn decoding_in_a_steady_state_asks_the_system_for_nothing_large_and_little_small() {
    let device = Device::cpu(1);
    let files = ModelFiles::open(&folder("demo/qwen4_exp")).unwrap();
    let loaded = ds4_models::load(&files, &LoadOptions::new(&Stream::new(&device))).unwrap();
    let mut cache = loaded.model.new_cache();
    (0..STEPS as u32).for_each(|token| step(&*loaded.model, &mut cache, token));

    let buffers = device.memory().stats().system_allocations;
    let counted = allocation_counter::measure(|| {
        (0..STEPS as u32).for_each(|token| step(&*loaded.model, &mut cache, token));
    });
    assert_eq!(device.memory().stats().system_allocations, buffers, "buffers of arrays are used again");
    let per_step = counted.count_total / STEPS as u64;
    assert!(
        per_step <= ACCEPTED,
        "{per_step} allocations a step, {} bytes",
        counted.bytes_total / STEPS as u64
    );
}
