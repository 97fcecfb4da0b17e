//! What all routes share: the engine, the text model and the options.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ds4_engine_api::{Engine, SamplingParams, Speculation, SpeculationMode};
use ds4_text::{ChatPrompt, TextModel, Thinking, Timelines};
use tokio::sync::Semaphore;

use crate::conversations::Conversations;
use crate::ending::Ending;
use crate::error::ApiError;
use crate::responses::Responses;

/// Requests that are prepared at the same time, at most.
const PREPARING: usize = 2;

/// Settings of the HTTP side. How many requests may wait is the engine's business.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// If set, requests need `Authorization: Bearer` with this key; `/health` does not.
    pub api_key: Option<String>,
    /// Largest body of a request, in bytes. Parsing one takes up to 60 times as much memory, if it is tiny objects.
    pub max_body_bytes: usize,
    /// After this long without an event, a stream gets a comment that keeps proxies and clients from giving up.
    pub keep_alive: Duration,
    /// Name of the model in responses and in `/v1/models`; the engine's own name if `None`.
    pub model_id: Option<String>,
    /// After a shutdown was asked for, running answers have this long to end.
    pub shutdown_grace: Duration,
    /// Seed of requests that give none; `None` draws one for each.
    pub default_seed: Option<u64>,
    /// Thinking of chat requests that say nothing of it.
    pub default_thinking: Thinking,
    /// How tokens are drafted ahead for requests that say nothing of it.
    pub default_speculation: Speculation,
}

impl Default for ApiOptions {
    /// No key, 16 MiB (a million tokens of text, escapes included), a comment every 5 s, the engine's name, 5 s to end, drawn
    /// seeds, thinking as the template has it.
    fn default() -> Self {
        Self {
            api_key: None,
            max_body_bytes: 16 << 20,
            keep_alive: Duration::from_secs(5),
            model_id: None,
            shutdown_grace: Duration::from_secs(5),
            default_seed: None,
            default_thinking: Thinking::Default,
            default_speculation: Speculation::default(),
        }
    }
}

/// What the routes work with. Clones share everything.
#[derive(Clone)]
pub struct ApiState(Arc<Inner>);

struct Inner {
    engine: Arc<dyn Engine>,
    text: Arc<TextModel>,
    options: ApiOptions,
    /// Requests that may be prepared at the same time.
    preparing: Arc<Semaphore>,
    /// What was sampled lately.
    timelines: Mutex<Timelines>,
    /// What was said lately.
    conversations: Mutex<Conversations>,
    ending: Ending,
    responses: Responses,
}

impl ApiState {
    /// Joins an engine and the text model of the same checkpoint.
    pub fn new(engine: Arc<dyn Engine>, text: Arc<TextModel>, options: ApiOptions) -> Self {
        Self(Arc::new(Inner {
            engine,
            text,
            options,
            preparing: Arc::new(Semaphore::new(PREPARING)),
            timelines: Mutex::default(),
            conversations: Mutex::default(),
            ending: Ending::default(),
            responses: Responses::default(),
        }))
    }

    /// Remembers the tokens of a conversation, prompt and answer: a request that sends its text back gets them as they were.
    /// Those of this server's answers are remembered by themselves; this is for those of an earlier run.
    pub fn remember(&self, timeline: Vec<u32>) {
        self.0.timelines.lock().unwrap_or_else(PoisonError::into_inner).keep(timeline);
    }

    /// The tokens of a rendered prompt, with those that were sampled where its text repeats an answer.
    pub(crate) fn with_sampled_tokens(&self, prompt: Vec<u32>) -> Vec<u32> {
        let timelines = self.0.timelines.lock().unwrap_or_else(PoisonError::into_inner);
        timelines.apply(self.text().tokenizer(), prompt)
    }

    /// What was said in a session, as far as this is remembered.
    pub(crate) fn conversation(&self, session: &str) -> Option<ChatPrompt> {
        self.conversations().get(session).cloned()
    }

    pub(crate) fn conversations(&self) -> MutexGuard<'_, Conversations> {
        self.0.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what takes a while and memory, such as parsing, rendering and encoding a long conversation, away from the
    /// threads that serve connections. A few at a time: many clients must not take the cores from the model, nor all of
    /// the memory.
    pub(crate) async fn prepare<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = Arc::clone(&self.0.preparing).acquire_owned().await;
        let state = self.clone();
        let work = move || {
            // Held here, so that work of a client that went away counts until it is done.
            let _permit = permit;
            work(&state)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(ApiError::Panicked))
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        self.0.engine.as_ref()
    }

    pub(crate) fn text(&self) -> &TextModel {
        &self.0.text
    }

    pub(crate) fn ending(&self) -> &Ending {
        &self.0.ending
    }

    pub(crate) fn responses(&self) -> &Responses {
        &self.0.responses
    }

    pub(crate) fn options(&self) -> &ApiOptions {
        &self.0.options
    }

    /// Fills in the seed of a request that gave none.
    pub(crate) fn with_default_seed(&self, sampling: SamplingParams) -> SamplingParams {
        SamplingParams { seed: sampling.seed.or(self.options().default_seed), ..sampling }
    }

    /// What a request wants of drafting ahead, completed by the defaults.
    pub(crate) fn or_default_speculation(
        &self,
        (mode, depth): (Option<SpeculationMode>, Option<usize>),
    ) -> Speculation {
        let default = self.options().default_speculation;
        Speculation { mode: mode.unwrap_or(default.mode), depth: depth.unwrap_or(default.depth) }
    }

    /// What a request wants, or the default if it wants nothing.
    pub(crate) fn or_default_thinking(&self, wanted: Thinking) -> Thinking {
        if wanted == Thinking::Default { self.options().default_thinking } else { wanted }
    }

    /// The name that clients see.
    pub(crate) fn model_id(&self) -> &str {
        self.options().model_id.as_deref().unwrap_or(&self.engine().model().id)
    }

    /// Refuses a model that is not served. Accepted are the served name, the engine's own name and `default`;
    /// a request without a model means the one that is there.
    pub(crate) fn check_model(&self, model: Option<&str>) -> Result<(), ApiError> {
        let served = self.model_id();
        match model {
            None => Ok(()),
            Some(name) if name == served || name == self.engine().model().id || name == "default" => Ok(()),
            Some(name) => Err(ApiError::ModelNotFound { model: name.to_owned(), served: served.to_owned() }),
        }
    }
}

impl fmt::Debug for ApiState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ApiState").field("model", &self.model_id()).finish_non_exhaustive()
    }
}
