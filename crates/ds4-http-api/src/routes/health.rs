//! `GET /health`: small and cheap, and answered while the engine is busy. No key is needed.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use crate::state::ApiState;

#[derive(Debug, Serialize)]
pub(super) struct Health {
    status: &'static str,
    model: String,
    running: usize,
    waiting: usize,
}

pub(super) async fn health(State(state): State<ApiState>) -> Json<Health> {
    let engine = state.engine().status();
    Json(Health {
        status: "ok",
        model: state.model_id().to_owned(),
        running: engine.running,
        waiting: engine.waiting,
    })
}
