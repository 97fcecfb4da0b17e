//! `POST /v1/completions`: the prompt goes to the model as it is. Without `max_tokens` an answer has at most 16
//! tokens, as OpenAI documents.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use ds4_engine_api::{GenerateRequest, SessionUse};
use ds4_text::{OutputOptions, first_words};
use serde_json::{Map, Value};

use super::Prompted;
use crate::error::ApiError;
use crate::generation::{Generation, Prepared, Step};
use crate::identity::Identity;
use crate::sse;
use crate::state::ApiState;
use crate::wire::openai::completion_request::{CompletionRequest, Prompt};
use crate::wire::openai::completion_response::{CompletionAnswer, CompletionWriter};

/// Where the prompt comes from, for errors.
const INPUT: &str = "prompt";

pub(super) async fn create(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let completion = super::prepare(&state, request, prompt).await?;
    let mut generation = Generation::start(&state, completion.prepared)?;
    let identity = Identity::new("cmpl", state.model_id(), state.engine().model());
    if completion.stream {
        let keep_alive = state.options().keep_alive;
        let writer = CompletionWriter::new(state, identity, completion.include_usage, completion.logprobs);
        return Ok(sse::stream(generation, writer, keep_alive));
    }
    let mut answer = CompletionAnswer::default();
    loop {
        match generation.next().await? {
            Step::Pieces { deltas, logprobs } => answer.add(deltas, logprobs),
            Step::End { finish, counts } => {
                let tokenizer = completion.logprobs.then(|| state.text().tokenizer());
                let headers = super::session_headers(&counts);
                let body = Json(answer.response(&identity, finish, counts, tokenizer));
                return Ok((headers, body).into_response());
            }
        }
    }
}

fn prompt(state: &ApiState, object: &Map<String, Value>) -> Result<Prompted, ApiError> {
    let text = state.text();
    let completion = CompletionRequest::read(object, text.defaults(), state.engine().model().vocabulary)?;
    let parameters = completion.parameters;
    state.check_model(parameters.model.as_deref())?;
    let (tokens, title) = match completion.prompt {
        Prompt::Text(prompt) => {
            let tokens = text.encode_raw(&prompt).map_err(|error| ApiError::Text { error, input: INPUT })?;
            (tokens, first_words(&prompt))
        }
        Prompt::Tokens(tokens) => (tokens, None),
    };
    let output = text.output(OutputOptions { raw: true, stop: parameters.stop, ..OutputOptions::default() });
    let request = GenerateRequest {
        prompt: tokens,
        sampling: state.with_default_seed(parameters.sampling),
        speculation: state.or_default_speculation(parameters.speculation),
        session: SessionUse { id: parameters.session, title, ..SessionUse::default() },
        shared_prefix: 0,
        max_tokens: completion.max_tokens,
        stop_tokens: text.stop_tokens().to_vec(),
        logprobs: completion.logprobs,
    };
    Ok(Prompted {
        prepared: Prepared { request, output, in_reasoning: false, conversation: None, input: INPUT },
        stream: parameters.stream,
        include_usage: parameters.include_usage,
        logprobs: completion.logprobs.is_some(),
    })
}
