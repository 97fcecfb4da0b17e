//! Memory for intermediate values that a thread uses again, so that kernels allocate nothing once they have run.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

thread_local! {
    /// Memory that is not in use. There are as many pieces as were in use at once.
    static SPARE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// A slice of floats that goes back to the thread when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(Vec<f32>);

impl Scratch {
    /// `len` floats with arbitrary contents.
    pub(crate) fn new(len: usize) -> Self {
        let mut memory = SPARE.with_borrow_mut(|spare| {
            // The smallest that is large enough, so that pieces of several sizes settle.
            let fitting = spare.iter().enumerate().filter(|(_, memory)| memory.capacity() >= len);
            let best = fitting.min_by_key(|(_, memory)| memory.capacity()).map(|(i, _)| i);
            best.map(|i| spare.swap_remove(i)).or_else(|| spare.pop()).unwrap_or_default()
        });
        memory.resize(len, 0.0);
        Self(memory)
    }

    /// `len` floats, all `value`.
    pub(crate) fn filled(len: usize, value: f32) -> Self {
        let mut scratch = Self::new(len);
        scratch.fill(value);
        scratch
    }

    /// A copy of `x`.
    pub(crate) fn copy_of(x: &[f32]) -> Self {
        let mut scratch = Self::new(x.len());
        scratch.copy_from_slice(x);
        scratch
    }
}

impl Deref for Scratch {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.0);
        // While a thread ends its spare memory may be gone already; then this piece goes too.
        let _ = SPARE.try_with(|spare| spare.borrow_mut().push(memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_never_shared() {
        let first = Scratch::filled(100, 1.0);
        let second = Scratch::filled(50, 2.0);
        assert!(first.iter().all(|x| *x == 1.0) && first.len() == 100);
        let address = second.as_ptr();
        drop(second);
        assert_eq!(Scratch::new(20).as_ptr(), address);
    }
}
