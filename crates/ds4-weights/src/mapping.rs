//! A file mapped into memory, and hints to the system about how it will be read.
//!
//! The only unsafe code of this crate.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use memmap2::{Advice, Mmap, UncheckedAdvice};

/// Pages are at least this large on every machine we run on; touching one byte in each loads all.
const PAGE: usize = 4096;

/// A read-only mapping of a whole file.
#[derive(Debug)]
pub(crate) struct Mapping {
    map: Mmap,
    /// Tensors read here and there, which loading ahead must leave alone.
    random: Mutex<Vec<Range<usize>>>,
}

impl Mapping {
    /// Maps `path`. The file must not be changed while the mapping lives: weights are opened read-only and written
    /// under temporary names, so nothing of ours does.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the mapping is private and read-only, and its length is taken from the open file. If another
        // program shortens the file meanwhile, reading ends the process with a bus error; changed contents are plain
        // bytes that every reader treats as numbers.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self { map, random: Mutex::new(Vec::new()) })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Says that `range` is read in scattered small pieces: no reading ahead.
    pub(crate) fn advise_random(&self, range: Range<usize>) {
        self.advise(Advice::Random, &range);
        self.random.lock().unwrap_or_else(PoisonError::into_inner).push(range);
    }

    /// Whether [`advise_random`](Self::advise_random) was called for `range`.
    pub(crate) fn is_random(&self, range: &Range<usize>) -> bool {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).contains(range)
    }

    /// Loads `range` into memory, in large pages where the file system has them: to translate an address costs a product as
    /// much as some of its weights.
    pub(crate) fn load(&self, range: Range<usize>) {
        #[cfg(target_os = "linux")]
        self.advise(Advice::HugePage, &range);
        self.advise(Advice::WillNeed, &range);
        let mut sum = 0u8;
        for position in range.step_by(PAGE) {
            sum = sum.wrapping_add(self.map[position]);
        }
        std::hint::black_box(sum);
    }

    /// Lets go of the memory behind `range`; it is read from the file again if somebody looks.
    pub(crate) fn release(&self, range: &Range<usize>) {
        // Whole pages only: the rest belongs to neighbours.
        let (start, end) = (range.start.next_multiple_of(PAGE), range.end / PAGE * PAGE);
        if start < end {
            // SAFETY: the mapping is of a file and never written, so that dropped pages come back unchanged.
            let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
        }
    }

    fn advise(&self, advice: Advice, range: &Range<usize>) {
        if range.is_empty() {
            return;
        }
        // A hint that the system refuses costs speed, not correctness.
        let _ = self.map.advise_range(advice, range.start, range.len());
    }
}
