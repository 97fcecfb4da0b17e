//! `POST /v1/chat/completions`.
//!
//! Without `max_tokens` an answer may be as long as `generation_config.json` says, or fill the context if that says
//! nothing. A larger value than the context has room for is lowered to the room.
//!
//! Not OpenAI's: `session_id` names the conversation that the request belongs to. It need not be given, because the engine
//! finds by itself what a prompt can start from. The answer's `usage.session` has the name and, if nothing could be reused,
//! the reason; an answer that is no stream has both as headers, `x-ds4-session` and `x-ds4-cache-miss`.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use ds4_engine_api::GenerateRequest;
use ds4_text::{ChatPrompt, OutputOptions};
use serde_json::{Map, Value};

use super::Prompted;
use crate::error::ApiError;
use crate::generation::{Generation, Prepared, Step};
use crate::identity::Identity;
use crate::sse;
use crate::state::ApiState;
use crate::wire::openai::chat_request::ChatRequest;
use crate::wire::openai::chat_response::{ChatAnswer, ChatWriter};

/// Where the prompt comes from, for errors.
const INPUT: &str = "messages";

pub(super) async fn create(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let chat = super::prepare(&state, request, prompt).await?;
    let mut generation = Generation::start(&state, chat.prepared)?;
    let identity = Identity::new("chatcmpl", state.model_id(), state.engine().model());
    if chat.stream {
        let keep_alive = state.options().keep_alive;
        let writer = ChatWriter::new(state, identity, chat.include_usage, chat.logprobs);
        return Ok(sse::stream(generation, writer, keep_alive));
    }
    let mut answer = ChatAnswer::default();
    loop {
        match generation.next().await? {
            Step::Pieces { deltas, logprobs } => answer.add(deltas, logprobs),
            Step::End { finish, counts } => {
                let tokenizer = chat.logprobs.then(|| state.text().tokenizer());
                let headers = super::session_headers(&counts);
                return Ok(
                    (headers, Json(answer.response(identity, finish, counts, tokenizer))).into_response()
                );
            }
        }
    }
}

fn prompt(state: &ApiState, object: &Map<String, Value>) -> Result<Prompted, ApiError> {
    let text = state.text();
    let model = state.engine().model();
    let chat = ChatRequest::read(object, text.defaults(), model.vocabulary)?;
    let parameters = chat.parameters;
    state.check_model(parameters.model.as_deref())?;
    let bytes = chat.messages.iter().map(|message| message.content.len()).sum();
    state.check_prompt_bytes(bytes, INPUT)?;
    let chat_prompt = ChatPrompt {
        messages: chat.messages,
        tools: chat.tools.clone(),
        thinking: state.or_default_thinking(chat.thinking),
        template_kwargs: chat.template_kwargs,
        add_generation_prompt: true,
    };
    let rendered = text.render_chat(&chat_prompt)?;
    let tokens = state.with_sampled_tokens(rendered.tokens);
    let output = text.output(OutputOptions {
        in_reasoning: rendered.in_reasoning,
        stop: parameters.stop,
        tools: chat.tools,
        raw: false,
    });
    let max_tokens = chat.max_tokens.or(text.defaults().max_new_tokens).unwrap_or(model.context);
    let request = GenerateRequest {
        shared_prefix: text.shared_prefix(&chat_prompt, &tokens),
        prompt: tokens,
        sampling: state.with_default_seed(parameters.sampling),
        speculation: state.or_default_speculation(parameters.speculation),
        session: parameters.session,
        max_tokens,
        stop_tokens: text.stop_tokens().to_vec(),
        logprobs: chat.logprobs,
    };
    Ok(Prompted {
        prepared: Prepared { request, output, in_reasoning: rendered.in_reasoning, input: INPUT },
        stream: parameters.stream,
        include_usage: parameters.include_usage,
        logprobs: chat.logprobs.is_some(),
    })
}
