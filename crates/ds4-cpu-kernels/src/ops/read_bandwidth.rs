//! A streaming read, to measure how fast the machine can read memory. Not used by models.

use crate::Cpu;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes a task reads at a time.
const BLOCK: usize = 1 << 20;

/// Reads `buffer` once on all threads and returns a checksum of it, so that the reading cannot be left out.
pub fn read_bandwidth(cpu: &Cpu, buffer: &[u8]) -> u64 {
    let sum = AtomicU64::new(0);
    cpu.pool().run(buffer.len().div_ceil(BLOCK), &|task| {
        let block = &buffer[task * BLOCK..buffer.len().min((task + 1) * BLOCK)];
        // Wrapping addition has no order, so the checksum does not depend on the threads.
        sum.fetch_add(dispatch!(cpu, read_bandwidth::checksum(block)), Ordering::Relaxed);
    });
    sum.into_inner()
}
