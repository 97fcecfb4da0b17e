//! From a conversation to a request that is ready for the engine.

use ds4_engine_api::{GenerateRequest, SamplingParams, SessionUse, Speculation};
use ds4_text::{ChatPrompt, OutputOptions};

use crate::error::ApiError;
use crate::generation::Prepared;
use crate::state::ApiState;
use crate::wire::openai::parameters::Parameters;

/// Where the prompt comes from, for errors.
const INPUT: &str = "messages";

/// How the answer to a conversation is made.
#[derive(Clone, Debug)]
pub(super) struct Answering {
    pub(super) sampling: SamplingParams,
    pub(super) speculation: Speculation,
    /// Texts that end the answer.
    pub(super) stop: Vec<String>,
    /// The model's own limit, or that of the context, if `None`.
    pub(super) max_tokens: Option<usize>,
    /// Alternatives at each position, if log-probabilities are asked for.
    pub(super) logprobs: Option<usize>,
}

impl Answering {
    /// As a request wants it, completed by the server's defaults.
    pub(super) fn new(state: &ApiState, parameters: &Parameters, max_tokens: Option<usize>) -> Self {
        Self {
            sampling: state.with_default_seed(parameters.sampling.clone()),
            speculation: state.or_default_speculation(parameters.speculation),
            stop: parameters.stop.clone(),
            max_tokens,
            logprobs: None,
        }
    }
}

/// Renders a conversation. What was sampled of it keeps its tokens.
pub(super) fn chat(
    state: &ApiState,
    conversation: ChatPrompt,
    answering: Answering,
    session: SessionUse,
) -> Result<Prepared, ApiError> {
    let text = state.text();
    let rendered = text.render_chat(&conversation)?;
    let prompt = state.with_sampled_tokens(rendered.tokens);
    let output = text.output(OutputOptions {
        in_reasoning: rendered.in_reasoning,
        stop: answering.stop,
        tools: conversation.tools.clone(),
        raw: false,
    });
    let limit = answering.max_tokens.or(text.defaults().max_new_tokens);
    let request = GenerateRequest {
        shared_prefix: text.shared_prefix(&conversation, &prompt),
        prompt,
        sampling: answering.sampling,
        speculation: answering.speculation,
        session: SessionUse { saves_prompt: rendered.in_reasoning, ..session },
        max_tokens: limit.unwrap_or(state.engine().model().context),
        stop_tokens: text.stop_tokens().to_vec(),
        logprobs: answering.logprobs,
    };
    let in_reasoning = rendered.in_reasoning;
    Ok(Prepared { request, output, in_reasoning, conversation: Some(conversation), input: INPUT })
}
