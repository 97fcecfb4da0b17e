//! Text to tokens and back: tokenizer, chat templates, reasoning and tool calls
