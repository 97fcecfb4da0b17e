//! How many responses had which status: refusals that never reach the engine are in none of its counters.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::state::ApiState;

/// Responses by status. A stream counts from its first byte on, whatever it ends with.
#[derive(Debug, Default)]
pub(crate) struct Responses(Mutex<BTreeMap<u16, u64>>);

impl Responses {
    /// How often each status was sent.
    pub(crate) fn counts(&self) -> BTreeMap<u16, u64> {
        self.lock().clone()
    }

    fn add(&self, status: u16) {
        *self.lock().entry(status).or_default() += 1;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the response to a request.
pub(crate) async fn count(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    state.responses().add(response.status().as_u16());
    response
}
