//! Flags of `serve`.

use std::net::IpAddr;

use clap::Args;

use super::range::at_least_one;
use super::size::size;
use super::{ModelFlags, SamplingFlags, SessionFlags};
use crate::env_vars;

const EXAMPLES: &str = "\
Answers follow the flags under \"Answers\" where a request does not say otherwise.

Examples:
  ds4server serve
  ds4server serve --model ~/models/qwen --host 0.0.0.0 --api-key secret
  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"ping\"}]}'";

/// Serve OpenAI's API over HTTP.
///
/// Routes: POST /v1/chat/completions and /v1/completions, GET /v1/models, /v1/sessions, /health and /metrics. Requests
/// run side by side as far as there are places, and the others wait. Ctrl-C or SIGTERM ends the server: running answers
/// have a few seconds to end, waiting ones are refused. A second signal ends them at once.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeFlags {
    /// Address to listen on; 0.0.0.0 is every network of this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,

    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(crate) port: u16,

    /// Key that clients have to send as a bearer token, on every route but /health [default: none]
    #[arg(long, value_name = "KEY", env = env_vars::API_KEY, hide_env = true)]
    pub(crate) api_key: Option<String>,

    /// Requests that run at a time, each with caches of its own; their answers do not depend on each other
    #[arg(long, value_name = "N", value_parser = at_least_one, default_value_t = 8)]
    pub(crate) parallel: usize,

    /// Most bytes of caches of requests that run side by side; who does not fit waits, and one alone may take more [default:
    /// what weights, --session-memory and an eighth of the memory leave, at least 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) cache_memory: Option<u64>,

    /// Most requests that may wait; more are turned away with status 429
    #[arg(long, value_name = "N", value_parser = at_least_one, default_value_t = 64)]
    pub(crate) max_waiting: usize,

    /// Largest body of a request; a larger one gets status 413. The default holds a million tokens of text
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "16MiB")]
    pub(crate) max_body: u64,

    /// What to log: error, warn, info, debug, trace, or filters such as ds4_engine=debug
    #[arg(long, value_name = "LEVEL", env = env_vars::LOG, hide_env = true, default_value = "warn")]
    pub(crate) log: String,

    /// Write nothing to standard error but errors and the log
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,

    #[command(flatten)]
    pub(crate) sessions: SessionFlags,

    #[command(flatten)]
    pub(crate) model: ModelFlags,
}
