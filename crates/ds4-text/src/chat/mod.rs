//! From a conversation to prompt tokens: messages, thinking, the checkpoint's template, and the guard that keeps what
//! clients typed from becoming markup.

mod compaction;
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
pub use message::{ChatPrompt, Message, Role, ToolCall};
pub use render::RenderedPrompt;
pub use thinking::{Thinking, ThinkingLevel};
pub use title::{first_words, title_of};

pub(crate) use guard::GuardedCharacters;
pub(crate) use render::{Renderer, SpecialTokens};
pub(crate) use template::ChatTemplate;
