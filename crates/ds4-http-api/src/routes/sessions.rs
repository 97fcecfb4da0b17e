//! `GET /v1/sessions`, `GET` and `DELETE /v1/sessions/{id}`: conversations that are kept. Not OpenAI's, and written as its
//! lists are. An id may have slashes in it.
//!
//! `title` has the first words of the person. `memory` and `disk` say what is kept in either place, `{"states", "bytes"}`, or
//! are null; what is only in memory is gone when the server ends.

use axum::Json;
use axum::extract::State;
use ds4_engine_api::SessionSummary;
use serde::Serialize;

use super::name::Name;
use crate::error::ApiError;
use crate::state::ApiState;

#[derive(Debug, Serialize)]
pub(super) struct Session {
    object: &'static str,
    #[serde(flatten)]
    summary: SessionSummary,
}

#[derive(Debug, Serialize)]
pub(super) struct SessionList {
    object: &'static str,
    data: Vec<Session>,
}

#[derive(Debug, Serialize)]
pub(super) struct Deleted {
    id: String,
    object: &'static str,
    deleted: bool,
}

impl From<SessionSummary> for Session {
    fn from(summary: SessionSummary) -> Self {
        Self { object: "session", summary }
    }
}

pub(super) async fn list(State(state): State<ApiState>) -> Json<SessionList> {
    let data = state.engine().sessions().into_iter().map(Session::from).collect();
    Json(SessionList { object: "list", data })
}

pub(super) async fn retrieve(
    State(state): State<ApiState>,
    Name(id): Name,
) -> Result<Json<Session>, ApiError> {
    let found = state.engine().sessions().into_iter().find(|session| session.id == id);
    found.map(|summary| Json(summary.into())).ok_or(ApiError::SessionNotFound { id })
}

pub(super) async fn delete(State(state): State<ApiState>, Name(id): Name) -> Result<Json<Deleted>, ApiError> {
    let name = id.clone();
    // It waits for the engine's thread and for the disk.
    let removed = tokio::task::spawn_blocking(move || {
        state.conversations().forget(&name);
        state.engine().remove_session(&name)
    })
    .await
    .map_err(|_| ApiError::Panicked)?
    .map_err(|error| ApiError::Engine { error, input: "id" })?;
    if !removed {
        return Err(ApiError::SessionNotFound { id });
    }
    Ok(Json(Deleted { id, object: "session.deleted", deleted: true }))
}
