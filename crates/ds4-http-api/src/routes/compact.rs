//! `POST /v1/sessions/{id}/compact`: a summary by the model takes the place of all but the last turn of a session.
//!
//! The body may be left out: then it is about what this server saw last of the session. After a restart, or if that was
//! long ago, the conversation has to be sent as `messages`, with `tools` if there are any. Besides, the sampling
//! parameters, `max_tokens` and the thinking switches of chat completions are read; the first two are for the summary.
//!
//! Two requests go to the engine: one for the summary, which leaves nothing behind, and one that reads the shorter
//! conversation into the session. Whatever fails, the session is what it was. Clients go on with the `messages` of the
//! response.

use axum::Json;
use axum::extract::{Request, State};
use ds4_engine_api::SessionUse;
use ds4_text::{ChatPrompt, Compacted, Compaction, TextDelta, title_of};
use serde::Serialize;
use serde_json::{Map, Value};

use super::name::Name;
use super::prompt::{self, Answering};
use crate::body;
use crate::error::ApiError;
use crate::generation::{Counts, Finish, Generation, Prepared, Step};
use crate::state::ApiState;
use crate::wire::openai::compact_request::CompactRequest;
use crate::wire::openai::messages;
use crate::wire::openai::usage::Usage;

/// What the path of a session ends with.
const ENDING: &str = "/compact";

#[derive(Debug, Serialize)]
pub(super) struct Response {
    id: String,
    object: &'static str,
    summary: String,
    replaced_messages: usize,
    /// Tokens of the session now.
    tokens: usize,
    messages: Vec<Value>,
    /// Of the request for the summary.
    usage: Usage,
}

/// What is to be made shorter, and the request for its summary.
struct Plan {
    conversation: ChatPrompt,
    answering: Answering,
    compaction: Compaction,
    summary: Prepared,
}

pub(super) async fn create(
    State(state): State<ApiState>,
    Name(path): Name,
    request: Request,
) -> Result<Json<Response>, ApiError> {
    let Some(id) = path.strip_suffix(ENDING).map(str::to_owned) else {
        return Err(ApiError::MethodNotAllowed { method: "POST".into(), path: request.uri().path().into() });
    };
    if state.engine().sessions().iter().all(|session| session.id != id) {
        return Err(ApiError::SessionNotFound { id });
    }
    let bytes = body::read(request.into_body(), state.options().max_body_bytes).await?;
    let session = id.clone();
    let plan = state.prepare(move |state| plan(state, &session, &bytes)).await?;
    let (answer, finish, counts) = ask(&state, plan.summary).await?;
    let compacted = plan.compaction.finish(&answer, finish == Finish::Stop)?;

    let shorter = ChatPrompt { messages: compacted.messages.clone(), ..plan.conversation };
    let session = id.clone();
    let prepared = state.prepare(move |state| rebuild(state, session, shorter, plan.answering)).await?;
    let tokens = prepared.request.prompt.len();
    // Half of it would stand in the place of the whole old conversation: it goes on if the client goes away.
    let reading = tokio::spawn(async move { ask(&state, prepared).await });
    reading.await.map_err(|_| ApiError::Panicked)??;
    let Compacted { summary, replaced, messages } = compacted;
    let messages = messages.iter().map(messages::write).collect();
    let object = "session.compaction";
    Ok(Json(Response {
        id,
        object,
        summary,
        replaced_messages: replaced,
        tokens,
        messages,
        usage: counts.into(),
    }))
}

fn plan(state: &ApiState, id: &str, bytes: &[u8]) -> Result<Plan, ApiError> {
    let object = if bytes.is_empty() { Map::new() } else { body::parse(bytes)? };
    let model = state.engine().model();
    let request = CompactRequest::read(&object, state.text().defaults(), model.vocabulary)?;
    state.check_model(request.parameters.model.as_deref())?;
    let conversation = match request.conversation {
        Some(sent) => ChatPrompt { thinking: state.or_default_thinking(sent.thinking), ..sent },
        None => {
            let known = state.conversation(id);
            known.ok_or_else(|| ApiError::ConversationUnknown { id: id.to_owned() })?
        }
    };
    let compaction = Compaction::of(&conversation)?;
    let answering =
        Answering { stop: Vec::new(), ..Answering::new(state, &request.parameters, request.max_tokens) };
    let aside = SessionUse { keeps: false, ..SessionUse::default() };
    let summary = prompt::chat(state, compaction.question().clone(), answering.clone(), aside)?;
    Ok(Plan { conversation, answering, compaction, summary: Prepared { conversation: None, ..summary } })
}

/// The request that reads the shorter conversation. It is not answered.
fn rebuild(
    state: &ApiState,
    id: String,
    shorter: ChatPrompt,
    answering: Answering,
) -> Result<Prepared, ApiError> {
    let session = SessionUse { id: Some(id), title: title_of(&shorter.messages), ..SessionUse::default() };
    let shorter = ChatPrompt { add_generation_prompt: false, ..shorter };
    prompt::chat(state, shorter, Answering { max_tokens: Some(0), ..answering }, session)
}

/// The content of a whole answer.
async fn ask(state: &ApiState, prepared: Prepared) -> Result<(String, Finish, Counts), ApiError> {
    let mut generation = Generation::start(state, prepared)?;
    let mut content = String::new();
    loop {
        match generation.next().await? {
            Step::Pieces { deltas, .. } => deltas.into_iter().for_each(|delta| {
                if let TextDelta::Content(text) = delta {
                    content.push_str(&text);
                }
            }),
            Step::End { finish, counts } => return Ok((content, finish, counts)),
        }
    }
}
