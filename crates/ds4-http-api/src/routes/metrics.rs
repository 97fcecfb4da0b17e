//! `GET /metrics`: the engine's counters in Prometheus' text format.

use std::fmt::Write;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ds4_engine_api::EngineStatus;

use crate::state::ApiState;

pub(super) async fn metrics(State(state): State<ApiState>) -> Response {
    let text = prometheus(&state.engine().status());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn prometheus(status: &EngineStatus) -> String {
    let rows = [
        ("engine_up", "gauge", u64::from(status.stopped.is_none())),
        ("requests_running", "gauge", status.running as u64),
        ("requests_waiting", "gauge", status.waiting as u64),
        ("requests_completed_total", "counter", status.completed),
        ("requests_cancelled_total", "counter", status.cancelled),
        ("requests_failed_total", "counter", status.failed),
        ("prefill_tokens_total", "counter", status.prefill_tokens),
        ("decode_tokens_total", "counter", status.decode_tokens),
        ("drafted_tokens_total", "counter", status.drafted_tokens),
        ("accepted_tokens_total", "counter", status.accepted_tokens),
        ("verify_passes_total", "counter", status.verify_passes),
        ("cache_bytes", "gauge", status.cache_bytes),
    ];
    rows.iter().fold(String::new(), |mut text, (name, kind, value)| {
        // Writing to a string cannot fail.
        let _ = write!(text, "# TYPE ds4_{name} {kind}\nds4_{name} {value}\n");
        text
    })
}
