//! The routes, a file a group.

mod chat_completions;
mod compact;
mod completions;
mod health;
mod metrics;
mod models;
mod name;
mod prompt;
mod sessions;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::generation::{Counts, Prepared};
use crate::state::ApiState;
use crate::{auth, body, responses};

/// All routes. Errors, those of the router included, are OpenAI's error objects.
pub fn router(state: ApiState) -> Router {
    let keyed = Router::new()
        .route("/v1/chat/completions", post(chat_completions::create))
        .route("/v1/completions", post(completions::create))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::retrieve))
        .route("/v1/sessions", get(sessions::list))
        .route("/v1/sessions/{*id}", get(sessions::retrieve).delete(sessions::delete).post(compact::create))
        .route("/metrics", get(metrics::metrics))
        .route_layer(from_fn_with_state(state.clone(), auth::require_key));
    Router::new()
        .route("/health", get(health::health))
        .merge(keyed)
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(state.clone(), responses::count))
        .with_state(state)
}

async fn unknown_path(request: Request) -> Response {
    ApiError::UnknownPath { path: request.uri().path().to_owned() }.into_response()
}

async fn method_not_allowed(request: Request) -> Response {
    let method = request.method().to_string();
    ApiError::MethodNotAllowed { method, path: request.uri().path().to_owned() }.into_response()
}

/// A request that is ready for the engine, and how its answer is to be written.
struct Prompted {
    prepared: Prepared,
    stream: bool,
    include_usage: bool,
    logprobs: bool,
}

/// The session of an answer, and why no stored state was used. Streams begin before this is known: they say it in their
/// `usage`.
fn session_headers(counts: &Counts) -> HeaderMap {
    let named = [("x-ds4-session", Some(&counts.session)), ("x-ds4-cache-miss", counts.miss.as_ref())];
    let header = |(name, value): (&'static str, Option<&String>)| {
        Some((HeaderName::from_static(name), HeaderValue::from_str(value?).ok()?))
    };
    named.into_iter().filter_map(header).collect()
}

/// Reads a request's JSON and prepares it away from the threads that serve connections: parsing, rendering and
/// encoding a long conversation takes a while, and `/health` has to answer meanwhile.
async fn prepare(
    state: &ApiState,
    request: Request,
    make: fn(&ApiState, &Map<String, Value>) -> Result<Prompted, ApiError>,
) -> Result<Prompted, ApiError> {
    let bytes = body::read(request.into_body(), state.options().max_body_bytes).await?;
    state.prepare(move |state| make(state, &body::parse(&bytes)?)).await
}
