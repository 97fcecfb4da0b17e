//! Who wants to know, is told of every primitive that runs: what it was, how long it took, and the work it had to do.
//!
//! For measurements. Without an observer an evaluation pays for one look at an empty place.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::array::{Node, Operation};
use crate::work::{self, Work};

/// Is told of primitives as they run, on the thread that runs them.
pub trait Observer: Send + Sync {
    /// One primitive has run.
    fn ran(&self, step: &Ran);
}

/// A primitive that has run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Its name with what is fixed about it, such as the format of a weight; sizes that grow with the context are left out.
    pub primitive: String,
    /// Shape of the result, or of the matrix for a product with a weight.
    pub shape: Vec<usize>,
    /// Wall-clock time.
    pub time: Duration,
    /// What it had to do at least.
    pub work: Work,
}

/// Where an observer may stand.
#[derive(Default)]
pub(crate) struct Place(RwLock<Option<Arc<dyn Observer>>>);

impl Place {
    pub(crate) fn set(&self, observer: Option<Arc<dyn Observer>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = observer;
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn Observer>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A primitive that is about to run. Made before, because running takes the inputs away.
pub(crate) struct Watch {
    ran: Ran,
    started: Instant,
}

impl Watch {
    pub(crate) fn start(operation: &Operation, node: &Node) -> Self {
        let (primitive, shape) = work::label(operation, node);
        let ran = Ran { primitive, shape, time: Duration::ZERO, work: work::count(operation, node) };
        Self { ran, started: Instant::now() }
    }

    pub(crate) fn stop(mut self, observer: &dyn Observer) {
        self.ran.time = self.started.elapsed();
        observer.ran(&self.ran);
    }
}
