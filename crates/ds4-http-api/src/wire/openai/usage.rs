//! Token counts.

use serde::Serialize;

use crate::generation::Counts;

/// OpenAI's `usage`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PromptDetails {
    cached_tokens: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct CompletionDetails {
    reasoning_tokens: usize,
}

impl From<Counts> for Usage {
    fn from(counts: Counts) -> Self {
        Self {
            prompt_tokens: counts.prompt,
            completion_tokens: counts.completion,
            total_tokens: counts.prompt + counts.completion,
            prompt_tokens_details: PromptDetails { cached_tokens: counts.cached },
            completion_tokens_details: CompletionDetails { reasoning_tokens: counts.reasoning },
        }
    }
}
