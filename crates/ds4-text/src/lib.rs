//! Text to tokens and back: the checkpoint's tokenizer and chat template on the way in; streaming text, reasoning,
//! stop strings and tool calls on the way out. No arrays, no HTTP, no engine: ids go in and out as plain numbers.

mod byte_level;
mod chat;
mod checkpoint_settings;
mod error;
mod output;
mod prompt_limit;
mod text_model;
mod timelines;
mod tokenizer;
mod unapplied;

pub use chat::{
    ChatFamily, ChatPrompt, Compacted, Compaction, Message, RenderedPrompt, Role, Thinking, ThinkingLevel,
    ToolCall, first_words, instructions_with_summary, title_of,
};
pub use checkpoint_settings::GenerationDefaults;
pub use error::{CompactionError, TextError};
pub use output::{DeltaList, OutputOptions, OutputStream, ParsedToolCall, TextDelta};
pub use text_model::{TextModel, TextSources};
pub use timelines::Timelines;
pub use tokenizer::Tokenizer;
pub use unapplied::UnappliedSetting;

pub(crate) use chat::SpecialTokens;
