//! From generated tokens to what a client reads: whole characters, reasoning apart from the answer, stop strings,
//! tool calls.

mod delta;
mod dsml;
mod held_tail;
mod stop_matcher;
mod stream;
mod tool_call;
mod utf8;
mod vocabulary;

pub use delta::{DeltaList, ParsedToolCall, TextDelta};
pub use stream::{OutputOptions, OutputStream};

pub(crate) use vocabulary::OutputVocabulary;
