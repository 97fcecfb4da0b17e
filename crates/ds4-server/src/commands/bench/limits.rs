//! What this machine allows: memory read and multiply-adds on the registers, with the same threads as the model.

use std::hint::black_box;
use std::time::Instant;

use ds4_array::Device;
use memmap2::MmapMut;

/// Larger than the caches of any processor that this is likely to run on.
const BANDWIDTH_BYTES: usize = 256 << 20;
const RUNS: usize = 5;
/// Rounds of the multiply-add loop: some 20 ms.
const FMA_ROUNDS: usize = 4_000_000;

/// The best of several runs, because a limit is what can be reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes that all threads together read from memory a second.
    pub(super) bandwidth: f64,
    /// Floating-point operations of all threads together a second; a multiply-add is two.
    pub(super) flops: f64,
}

impl Limits {
    pub(super) fn measure(device: &Device) -> anyhow::Result<Self> {
        let cpu = device.kernels();
        let flops = (0..RUNS).map(|_| ds4_cpu_kernels::fma_flops(cpu, FMA_ROUNDS)).fold(0.0, f64::max);
        let mut buffer = MmapMut::map_anon(BANDWIDTH_BYTES)?;
        // Address translation must not be what is measured. Where this is not possible, small pages are the limit.
        #[cfg(target_os = "linux")]
        let _ = buffer.advise(memmap2::Advice::HugePage);
        buffer.fill(1);
        let read = |_| {
            let started = Instant::now();
            black_box(ds4_cpu_kernels::read_bandwidth(cpu, &buffer));
            buffer.len() as f64 / started.elapsed().as_secs_f64()
        };
        Ok(Self { bandwidth: (0..RUNS).map(read).fold(0.0, f64::max), flops })
    }

    /// The better of two measurements: others may have used the machine during one of them.
    pub(super) fn or_better(self, other: Self) -> Self {
        Self { bandwidth: self.bandwidth.max(other.bandwidth), flops: self.flops.max(other.flops) }
    }
}

impl std::fmt::Display for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.1} GB/s read from memory, {:.1} GFLOP/s multiplied and added",
            self.bandwidth / 1e9,
            self.flops / 1e9
        )
    }
}
