//! The last token ids: what an n-gram looks back at.

use std::sync::OnceLock;

use ds4_array::{Array, DType, Shape, Stream};

use super::{CacheError, PartVisitor, StateSource, take_part};

/// The last `N` ids, oldest first, kept on the host because hashing happens there.
#[derive(Clone, Debug)]
pub struct TokenTail {
    stream: Stream,
    ids: Vec<u32>,
    /// The ids as a part of a state, once it was asked for: one storage for as long as they stay, however often it is.
    part: OnceLock<Array>,
}

impl TokenTail {
    /// A tail of `count` times `padding`, the id that stands before the first token.
    pub fn new(stream: &Stream, count: usize, padding: u32) -> Self {
        Self { stream: stream.clone(), ids: vec![padding; count], part: OnceLock::new() }
    }

    /// The ids, oldest first.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Moves on by the ids `new`.
    pub fn push(&mut self, new: &[u32]) {
        let keep = self.ids.len();
        self.ids.extend_from_slice(new);
        self.ids.drain(..self.ids.len() - keep);
        self.part = OnceLock::new();
    }

    pub(super) fn visit_parts(&self, name: &str, visit: &mut PartVisitor<'_>) {
        if self.part.get().is_none()
            // Cannot fail: the shape is that of the slice, and a few ids fit into any memory limit.
            && let Ok(part) = Array::from_slice(&self.stream, &self.ids, &[self.ids.len()])
        {
            self.part.get_or_init(|| part);
        }
        if let Some(part) = self.part.get() {
            visit(format_args!("{name}"), part);
        }
    }

    pub(super) fn restore(&mut self, name: &str, source: &mut StateSource<'_>) -> Result<(), CacheError> {
        let array = take_part(source, name, Shape::from([self.ids.len()]), DType::U32)?;
        self.ids = array.to_vec::<u32>().map_err(|_| CacheError::MissingPart { name: name.to_owned() })?;
        self.part = OnceLock::from(array);
        Ok(())
    }
}
