//! An engine as a client sees it: opened on a checkpoint, asked with tokens, its events gathered into an answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ds4_array::{Device, Stream};
use ds4_engine::{DiskOptions, EngineOptions, LocalEngine, RequestLimits, SessionOptions};
use ds4_engine_api::{
    Engine as _, Event, Flow, GenerateRequest, SamplingParams, SessionUse, Speculation, SpeculationMode,
};
use ds4_models::LoadOptions;
use ds4_session_store::{Fingerprint, Fingerprints, Store, StoreError, StoreOptions};
use ds4_weights::ModelFiles;

/// Enough for every state of a short chat.
pub(super) const AMPLE: u64 = 1 << 30;

/// A model on disk.
pub(super) struct Checkpoint {
    pub(super) name: String,
    folder: PathBuf,
}

impl Checkpoint {
    pub(super) fn new(name: &str, folder: PathBuf) -> Self {
        Self { name: name.to_owned(), folder }
    }

    /// The same weights in another folder, with room for so many tokens. Positions beyond those that the model was trained on
    /// make poor answers; the size of a state and the time that it takes are what they are.
    pub(super) fn with_context(&self, folder: &Path, tokens: usize) -> anyhow::Result<Self> {
        for entry in fs::read_dir(&self.folder)? {
            let file = entry?;
            fs::copy(file.path(), folder.join(file.file_name()))?;
        }
        let path = folder.join("config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)?;
        let text = config.get_mut("text_config").context("config.json describes no text model")?;
        text["max_position_embeddings"] = tokens.into();
        fs::write(&path, serde_json::to_vec(&config)?)?;
        Ok(Self::new(&self.name, folder.to_owned()))
    }

    /// Loads the model and starts an engine.
    pub(super) fn start(&self, sessions: SessionOptions) -> anyhow::Result<Subject> {
        let device = Device::cpu(std::thread::available_parallelism().map_or(1, usize::from));
        let loaded =
            ds4_models::load(&ModelFiles::open(&self.folder)?, &LoadOptions::new(&Stream::new(&device)))?;
        let options = EngineOptions {
            model_id: self.name.clone(),
            context: None,
            requests: RequestLimits { parallel: 4, waiting: 4, caches: None },
            sessions,
        };
        Ok(Subject { engine: LocalEngine::start(loaded, options), device })
    }

    /// An engine that keeps nothing between requests.
    pub(super) fn cold(&self) -> anyhow::Result<Subject> {
        self.start(SessionOptions::default())
    }

    /// An engine that keeps states in memory.
    pub(super) fn in_memory(&self, memory_bytes: u64) -> anyhow::Result<Subject> {
        self.start(SessionOptions { memory_bytes, disk: None })
    }

    /// An engine that keeps states in a folder, and up to `memory_bytes` of them in memory.
    pub(super) fn on_disk(&self, folder: &Path, memory_bytes: u64) -> anyhow::Result<Subject> {
        let disk =
            DiskOptions { store: open_store(folder)?, fingerprints: fingerprints("model", "template") };
        self.start(SessionOptions { memory_bytes, disk: Some(disk) })
    }
}

/// A store that does not mind a full disk: the measured states are small.
pub(super) fn open_store(folder: &Path) -> Result<Arc<Store>, StoreError> {
    Store::open(folder, StoreOptions { free_floor: 0, ..StoreOptions::default() }).map(Arc::new)
}

pub(super) fn fingerprints(model: &str, template: &str) -> Fingerprints {
    let of = |name: &str| Fingerprint::of(name.as_bytes());
    Fingerprints { model: of(model), template: of(template), settings: of("settings") }
}

/// A running engine.
pub(super) struct Subject {
    pub(super) engine: LocalEngine,
    pub(super) device: Device,
}

/// What a client got.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) tokens: Vec<u32>,
    /// Bits of the reported log-probabilities: of each chosen token, followed by those of the best ones.
    pub(super) logprobs: Vec<u32>,
    pub(super) cached: usize,
    pub(super) miss: Option<String>,
    /// From the request to the first token.
    pub(super) first_token: Duration,
    /// Between one token and the next.
    pub(super) gaps: Vec<Duration>,
}

impl Answer {
    /// Whether this is `whole` or its beginning, in tokens and in the bits of the log-probabilities.
    pub(super) fn begins(&self, whole: &Self) -> bool {
        whole.tokens.starts_with(&self.tokens) && whole.logprobs.starts_with(&self.logprobs)
    }
}

/// Best tokens whose log-probabilities are compared at every position.
const TOP: usize = 5;

/// A greedy request.
pub(super) fn request(prompt: &[u32], max_tokens: usize) -> GenerateRequest {
    GenerateRequest {
        prompt: prompt.to_vec(),
        sampling: SamplingParams::default(),
        max_tokens,
        stop_tokens: Vec::new(),
        logprobs: Some(TOP),
        speculation: Speculation::default(),
        session: SessionUse::default(),
        shared_prefix: 0,
    }
}

/// One token a pass and nothing but tokens: what is timed.
pub(super) fn plain(prompt: &[u32], max_tokens: usize) -> GenerateRequest {
    let speculation = Speculation { mode: SpeculationMode::Off, ..Speculation::default() };
    GenerateRequest { logprobs: None, speculation, ..request(prompt, max_tokens) }
}

impl Subject {
    /// The whole answer.
    pub(super) fn ask(&self, request: GenerateRequest) -> anyhow::Result<Answer> {
        self.ask_and_cancel(request, usize::MAX)
    }

    /// Cancels after so many tokens; a few more may have come by then.
    pub(super) fn ask_and_cancel(&self, request: GenerateRequest, after: usize) -> anyhow::Result<Answer> {
        let (sender, events) = channel();
        let sink = move |event| {
            if sender.send((event, Instant::now())).is_ok() { Flow::Continue } else { Flow::Stop }
        };
        let mut last = Instant::now();
        let cancel = self.engine.submit(request, Box::new(sink))?;
        let mut answer = Answer::default();
        for (event, at) in events {
            match event {
                Event::Started { cached_tokens, miss, .. } => {
                    (answer.cached, answer.miss) = (cached_tokens, miss);
                }
                Event::Tokens(tokens) => {
                    let since = at.duration_since(last);
                    if answer.tokens.is_empty() {
                        answer.first_token = since
                    } else {
                        answer.gaps.push(since)
                    }
                    last = at;
                    answer.tokens.extend(tokens.iter().map(|token| token.id));
                    let reported = tokens
                        .iter()
                        .flat_map(|token| &token.logprobs)
                        .flat_map(|all| std::iter::once(&all.chosen).chain(&all.top));
                    answer.logprobs.extend(reported.map(|one| one.logprob.to_bits()));
                    if answer.tokens.len() >= after {
                        cancel.cancel();
                    }
                }
                Event::Failed(error) => bail!("the request failed: {error}"),
                Event::Queued { .. } | Event::Prefill { .. } | Event::Finished { .. } => {}
            }
        }
        Ok(answer)
    }

    /// Tokens that a model has.
    pub(super) fn vocabulary(&self) -> u32 {
        u32::try_from(self.engine.model().vocabulary).unwrap_or(u32::MAX)
    }
}

/// The same numbers in every run.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit.max(1)
    }

    /// Tokens of a text that nobody wrote; the first ids, which are often special, do not occur.
    pub(super) fn tokens(&mut self, count: usize, vocabulary: u32) -> Vec<u32> {
        const SPECIAL: usize = 10;
        let ordinary = vocabulary as usize - SPECIAL;
        (0..count).map(|_| (SPECIAL + self.below(ordinary)) as u32).collect()
    }
}

/// The middle one; zero if there are none.
pub(super) fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
