//! OpenAI's chat completions and completions, as its clients send and read them.

pub(crate) mod chat_request;
pub(crate) mod chat_response;
pub(crate) mod compact_request;
pub(crate) mod completion_request;
pub(crate) mod completion_response;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod parameters;
mod thinking;
mod tools;
mod unsupported;
pub(crate) mod usage;

use ds4_engine_api::TokenLogprob;

/// A log-probability as JSON can say it: there is no infinity, so that a token of probability 0 gets OpenAI's stand-in.
fn json_logprob(token: TokenLogprob) -> f32 {
    token.logprob.max(-9999.0)
}
