//! Token counts.

use ds4_engine_api::SpeculationUsage;
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
    /// Not OpenAI's: what drafting ahead did. Absent if nothing was drafted.
    #[serde(skip_serializing_if = "Option::is_none")]
    speculation: Option<SpeculationUsage>,
    /// Not OpenAI's: where the conversation is kept.
    session: Session,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Session {
    id: String,
    /// Why no stored state was used; null if one was.
    cache_miss: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PromptDetails {
    cached_tokens: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct CompletionDetails {
    reasoning_tokens: usize,
    accepted_prediction_tokens: u64,
    rejected_prediction_tokens: u64,
}

impl From<Counts> for Usage {
    fn from(counts: Counts) -> Self {
        let speculation = counts.speculation;
        let accepted = speculation.accepted + speculation.copied;
        let drafted = speculation.drafted + speculation.copy_drafted;
        Self {
            prompt_tokens: counts.prompt,
            completion_tokens: counts.completion,
            total_tokens: counts.prompt + counts.completion,
            prompt_tokens_details: PromptDetails { cached_tokens: counts.cached },
            completion_tokens_details: CompletionDetails {
                reasoning_tokens: counts.reasoning,
                accepted_prediction_tokens: accepted,
                rejected_prediction_tokens: drafted - accepted,
            },
            speculation: (speculation.drafted > 0 || speculation.copy_rounds > 0).then_some(speculation),
            session: Session { id: counts.session, cache_miss: counts.miss },
        }
    }
}
