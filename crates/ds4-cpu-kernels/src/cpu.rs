//! The handle every kernel call takes: which instruction set to use, and the threads to use it on.

use std::ops::Range;

use crate::Activations;
use crate::disjoint::Parts;
use crate::pool::Pool;

/// Work below which handing a task to another thread costs more than it saves: about a microsecond.
///
/// The unit is a multiply-add of a matrix product. An element that is only read, changed and written counts for 4, one
/// that needs an exponential for 16.
const MIN_TASK_COST: usize = 12 * 1024;

/// Tasks a thread should get on average, so that a thread held up by a neighbour can be helped out.
const TASKS_PER_THREAD: usize = 4;

/// The instruction set the kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain loops: runs everywhere and is what the others are tested against.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The same with AVX-512 (F, BW, VL, VNNI) besides.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 64-bit ARM with NEON and its dot products.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Isa {
    /// The fastest one this machine can run.
    pub fn best() -> Self {
        Self::all().last().copied().unwrap_or(Self::Scalar)
    }

    /// Those that this machine can run, slowest first.
    pub fn all() -> Vec<Self> {
        let mut all = vec![
            Self::Scalar,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512,
            #[cfg(target_arch = "aarch64")]
            Self::Neon,
        ];
        all.retain(|isa| isa.is_available());
        all
    }

    /// Its short name, as in a flag.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
        }
    }

    /// Whether this machine can run it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => {
                std::arch::is_aarch64_feature_detected!("neon")
                    && std::arch::is_aarch64_feature_detected!("dotprod")
            }
        }
    }
}

/// An instruction set, chosen once, and a thread pool of its own.
///
/// Results never depend on the number of threads, and the result of a row never depends on the other rows of the call.
#[derive(Debug)]
pub struct Cpu {
    isa: Isa,
    pool: Pool,
    activations: Activations,
}

impl Cpu {
    /// The best instruction set of this machine on `threads` threads; the calling thread is one of them.
    pub fn new(threads: usize) -> Self {
        Self::of(Isa::best(), Pool::new(threads))
    }

    /// Plain loops on the calling thread: the reference.
    pub fn scalar() -> Self {
        Self::of(Isa::Scalar, Pool::new(1))
    }

    /// A given instruction set, or `None` where this machine lacks it.
    pub fn with_isa(isa: Isa, threads: usize) -> Option<Self> {
        isa.is_available().then(|| Self::of(isa, Pool::new(threads)))
    }

    /// The same on threads that exist.
    pub fn with_pool(isa: Isa, pool: Pool) -> Option<Self> {
        isa.is_available().then(|| Self::of(isa, pool))
    }

    fn of(isa: Isa, pool: Pool) -> Self {
        Self { isa, pool, activations: Activations::default() }
    }

    /// The same with another precision of activations in products with quantised weights.
    pub fn with_activations(self, activations: Activations) -> Self {
        Self { activations, ..self }
    }

    /// The precision of activations in products with quantised weights.
    pub fn activations(&self) -> Activations {
        self.activations
    }

    /// The instruction set in use. It is always one the machine has: no other way to make a `Cpu` exists.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads a kernel may use, the calling one included.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The pool the kernels run on, for work of the caller's own.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// How many of `units` equal pieces of work one task should take.
    pub(crate) fn units_per_task(&self, units: usize, cost_per_unit: usize) -> usize {
        if self.threads() == 1 {
            return units.max(1);
        }
        let worth_it = MIN_TASK_COST.div_ceil(cost_per_unit.max(1));
        units.div_ceil(self.threads() * TASKS_PER_THREAD).max(worth_it).max(1)
    }

    /// Runs `task(i)` for each `i` below `tasks`, over the pool if all of them together are worth it.
    pub(crate) fn for_each_task(&self, tasks: usize, total_cost: usize, task: &(dyn Fn(usize) + Sync)) {
        if total_cost < 2 * MIN_TASK_COST {
            (0..tasks).for_each(task);
        } else {
            self.pool.run(tasks, task);
        }
    }

    /// Cuts `0..units` into ranges and runs `task` on each, over the pool if that pays.
    pub(crate) fn for_each_range(
        &self,
        units: usize,
        cost_per_unit: usize,
        task: impl Fn(Range<usize>) + Sync,
    ) {
        self.for_each_chunk(units, self.units_per_task(units, cost_per_unit), task);
    }

    /// Cuts `0..units` into ranges of `size`, at least 1, and runs `task` on each over the pool.
    pub(crate) fn for_each_chunk(&self, units: usize, size: usize, task: impl Fn(Range<usize>) + Sync) {
        self.pool.run(units.div_ceil(size), &|i| task(i * size..units.min((i + 1) * size)));
    }

    /// Cuts `out` into runs of whole rows of `width` and gives each task its run and the index of its first row.
    pub(crate) fn for_each_rows<T: Send>(
        &self,
        out: &mut [T],
        width: usize,
        cost_per_row: usize,
        task: impl Fn(usize, &mut [T]) + Sync,
    ) {
        if out.is_empty() {
            return;
        }
        debug_assert_eq!(out.len() % width, 0, "output is not whole rows of {width}");
        let rows = out.len() / width;
        let parts = Parts::new(out);
        self.for_each_range(rows, cost_per_row, |range| {
            let first = range.start;
            // SAFETY: the ranges of rows given to tasks do not overlap.
            task(first, unsafe { parts.range(range.start * width..range.end * width) });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_everything_once() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        for threads in [1, 2, 3] {
            let cpu = Cpu::new(threads);
            for units in [0, 1, 5, 1000] {
                let seen: Vec<AtomicUsize> = (0..units).map(|_| AtomicUsize::new(0)).collect();
                cpu.for_each_range(units, 30_000, |range| {
                    for i in range {
                        seen[i].fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn the_scalar_cpu_is_scalar_and_alone() {
        let cpu = Cpu::scalar();
        assert_eq!((cpu.isa(), cpu.threads()), (Isa::Scalar, 1));
    }
}
