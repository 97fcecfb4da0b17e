//! HTTP and SSE on top of the engine API, in OpenAI's dialect.
//!
//! [`router`] has the routes, [`serve`] runs them on a listener. A request becomes tokens here, with `ds4-text`; the
//! engine's events become text here. There are no arrays and no models: tests run against a scripted engine.
//!
//! What the routes take and refuse is described in `routes/`, module by module. In short: unknown parameters are
//! ignored; a parameter of OpenAI's API that is known and not implemented is an error, unless its value is the one
//! that changes nothing.

mod auth;
mod body;
mod conversations;
mod ending;
mod error;
mod fields;
mod generation;
mod identity;
mod responses;
mod routes;
mod server;
mod sse;
mod state;
mod token_logprobs;
mod wire;

pub use error::{ApiError, ParameterError};
pub use routes::router;
pub use server::serve;
pub use state::{ApiOptions, ApiState};
