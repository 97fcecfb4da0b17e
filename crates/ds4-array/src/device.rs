//! A place where arrays live and operations run.

use std::sync::Arc;

use ds4_cpu_kernels::Cpu;

use crate::memory::Allocator;
use crate::observer::{Observer, Place};

/// Which implementation of the primitives a device uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Plain loops on one thread: the oracle of the others.
    Reference,
    /// SIMD kernels on several threads.
    Cpu,
}

/// A backend with its kernels and its memory. Clones are the same device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    backend: Backend,
    kernels: Cpu,
    memory: Allocator,
    observer: Place,
}

impl Device {
    /// The reference device.
    pub fn reference() -> Self {
        Self::with(Backend::Reference, Cpu::scalar())
    }

    /// The CPU with the best instruction set it has, on this many threads (at least one).
    pub fn cpu(threads: usize) -> Self {
        Self::with(Backend::Cpu, Cpu::new(threads.max(1)))
    }

    /// The CPU with kernels that the caller chose: their instruction set, threads and precision.
    pub fn with_kernels(kernels: Cpu) -> Self {
        Self::with(Backend::Cpu, kernels)
    }

    fn with(backend: Backend, kernels: Cpu) -> Self {
        Self(Arc::new(Inner { backend, kernels, memory: Allocator::new(), observer: Place::default() }))
    }

    /// Which backend it is.
    pub fn backend(&self) -> Backend {
        self.0.backend
    }

    /// The kernels and their threads.
    pub fn kernels(&self) -> &Cpu {
        &self.0.kernels
    }

    /// The memory of its arrays.
    pub fn memory(&self) -> &Allocator {
        &self.0.memory
    }

    /// Sets who is told of every primitive that runs from now on, or nobody. For measurements: each primitive then costs
    /// some microseconds more.
    pub fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.0.observer.set(observer);
    }

    pub(crate) fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.0.observer.get()
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} with {} threads", self.backend(), self.kernels().threads())
    }
}
