//! `GET /health`: small and cheap, and answered while the engine is busy. No key is needed. After the engine has stopped
//! it is an error, so that a supervisor knows.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use crate::error::ApiError;
use crate::state::ApiState;

#[derive(Debug, Serialize)]
pub(super) struct Health {
    status: &'static str,
    model: String,
    running: usize,
    waiting: usize,
}

pub(super) async fn health(State(state): State<ApiState>) -> Result<Json<Health>, ApiError> {
    let engine = state.engine().status();
    if let Some(reason) = engine.stopped {
        return Err(ApiError::EngineStopped { reason });
    }
    Ok(Json(Health {
        status: "ok",
        model: state.model_id().to_owned(),
        running: engine.running,
        waiting: engine.waiting,
    }))
}
