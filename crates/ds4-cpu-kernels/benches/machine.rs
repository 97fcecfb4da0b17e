//! What this machine can do at most: reading memory and multiply-adds. The other benches are to be read beside it.

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use ds4_cpu_kernels::{Cpu, fma_flops, read_bandwidth};

fn main() {
    divan::main();
}

#[divan::bench(args = [1, 2], sample_count = 20)]
fn read(bencher: Bencher<'_, '_>, threads: usize) {
    let buffer = vec![1u8; 256 << 20];
    let cpu = Cpu::new(threads);
    bencher.counter(BytesCount::new(buffer.len())).bench_local(|| read_bandwidth(&cpu, &buffer));
}

#[divan::bench(args = [1, 2], sample_count = 20)]
fn multiply_add(bencher: Bencher<'_, '_>, threads: usize) {
    let cpu = Cpu::new(threads);
    // 12 vectors of 8 lanes, 2 operations each, on every thread.
    bencher
        .counter(ItemsCount::new(1_000_000usize * 12 * 8 * 2 * threads))
        .bench_local(|| fma_flops(&cpu, 1_000_000));
}

/// Waking the pool and coming back: the least a kernel call on several threads costs.
#[divan::bench(args = [2])]
fn empty_call(bencher: Bencher<'_, '_>, threads: usize) {
    let cpu = Cpu::new(threads);
    bencher.bench_local(|| {
        cpu.pool().run(threads, &|i| {
            divan::black_box(i);
        })
    });
}
