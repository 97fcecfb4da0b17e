//! From a conversation to prompt tokens: messages, thinking, the checkpoint's template or the family's, and the guard that
//! keeps what clients typed from becoming markup.

mod builtin;
mod compaction;
mod family;
mod guard;
mod history;
mod message;
mod python_json;
mod render;
mod strftime;
mod template;
mod thinking;
mod title;
mod values;

pub use compaction::{Compacted, Compaction, instructions_with_summary};
pub use family::ChatFamily;
pub use message::{ChatPrompt, Message, Role, ToolCall};
pub use render::RenderedPrompt;
pub use thinking::{Thinking, ThinkingLevel};
pub use title::{first_words, title_of};

pub(crate) use guard::GuardedCharacters;
pub(crate) use render::{Renderer, SpecialTokens, Template};
pub(crate) use template::ChatTemplate;
