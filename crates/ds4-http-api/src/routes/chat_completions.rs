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
use ds4_engine_api::SessionUse;
use ds4_text::{ChatPrompt, title_of};
use serde_json::{Map, Value};

use super::Prompted;
use super::prompt::{self, Answering};
use crate::error::ApiError;
use crate::generation::{Generation, Step};
use crate::identity::Identity;
use crate::sse;
use crate::state::ApiState;
use crate::wire::openai::chat_request::ChatRequest;
use crate::wire::openai::chat_response::{ChatAnswer, ChatWriter};

pub(super) async fn create(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let chat = super::prepare(&state, request, read).await?;
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

fn read(state: &ApiState, object: &Map<String, Value>) -> Result<Prompted, ApiError> {
    let defaults = state.text().defaults();
    let chat = ChatRequest::read(object, defaults, state.engine().model().vocabulary)?;
    let parameters = chat.parameters;
    state.check_model(parameters.model.as_deref())?;
    let answering =
        Answering { logprobs: chat.logprobs, ..Answering::new(state, &parameters, chat.max_tokens) };
    let conversation = ChatPrompt {
        messages: chat.messages,
        tools: chat.tools,
        thinking: state.or_default_thinking(chat.thinking),
        template_kwargs: chat.template_kwargs,
        add_generation_prompt: true,
    };
    let title = title_of(&conversation.messages);
    let session = SessionUse { id: parameters.session, title, ..SessionUse::default() };
    Ok(Prompted {
        prepared: prompt::chat(state, conversation, answering, session)?,
        stream: parameters.stream,
        include_usage: parameters.include_usage,
        logprobs: chat.logprobs.is_some(),
    })
}
