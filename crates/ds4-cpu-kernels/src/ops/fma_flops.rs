//! A loop of multiply-adds on registers, to measure the machine's peak. Not used by models.

use crate::Cpu;
use std::time::Instant;

/// Floating-point operations per second of all threads together, over `iterations` rounds of the loop on each.
pub fn fma_flops(cpu: &Cpu, iterations: usize) -> f64 {
    let start = Instant::now();
    cpu.pool().run(cpu.threads(), &|_| {
        std::hint::black_box(dispatch!(cpu, fma_flops::spin(std::hint::black_box(iterations))));
    });
    let operations = dispatch!(cpu, fma_flops::operations(iterations)) * cpu.threads();
    operations as f64 / start.elapsed().as_secs_f64()
}
