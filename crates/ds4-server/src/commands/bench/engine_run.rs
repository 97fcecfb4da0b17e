//! Prompts and their answers through the engine, as requests take them, beside what the machine's memory would allow.

use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use ds4_array::Device;
use ds4_engine::{EngineOptions, LocalEngine, RequestLimits, SessionOptions};
use ds4_engine_api::{
    Engine, Event, GenerateRequest, SamplingParams, SessionUse, Speculation, SpeculationMode, Usage,
};
use ds4_models::LoadedModel;
use serde_json::json;

use super::super::sizes;
use super::limits::Limits;
use super::spread::Spread;
use super::tokens;
use crate::exit_code::Usage as UsageError;
use crate::flags::ModelSettings;

/// What the engine is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// Requests at a time.
    pub(super) parallel: usize,
    /// Tokens of each prompt and of each answer.
    pub(super) prompt: usize,
    pub(super) answer: usize,
    /// How often.
    pub(super) runs: usize,
}

pub(super) fn run(
    kind: Kind,
    settings: &ModelSettings,
    loaded: LoadedModel,
    model_id: String,
    device: &Device,
) -> anyhow::Result<Figures> {
    let bytes_per_token = loaded.bytes_per_token;
    let options = EngineOptions {
        model_id,
        context: settings.context,
        requests: RequestLimits { parallel: kind.parallel, waiting: kind.parallel, caches: None },
        // Repetitions are to be computed, not remembered.
        sessions: SessionOptions::default(),
    };
    let engine = LocalEngine::start(loaded, options);
    let (context, needed) = (engine.model().context, kind.prompt + kind.answer);
    if needed > context {
        let message = format!("--prompt and --gen are {needed} tokens together, the context has {context}");
        return Err(UsageError(message).into());
    }

    // The first run pays for memory that later ones use again, and teaches the engine its chunk size.
    measure(&engine, kind)?;
    let runs: Vec<Run> = (0..kind.runs).map(|_| measure(&engine, kind)).collect::<anyhow::Result<_>>()?;
    let requests = || runs.iter().flat_map(|run| &run.requests);
    Ok(Figures {
        kind,
        threads: settings.threads,
        prefill: Spread::of(requests().map(Usage::prefill_tokens_per_second)),
        decode: Spread::of(requests().map(Usage::decode_tokens_per_second)),
        together: Spread::of(runs.iter().map(|run| (kind.parallel * kind.answer) as f64 / run.seconds)),
        bytes_per_token,
        bandwidth: Limits::measure(device)?.bandwidth,
        array_bytes: device.memory().stats().peak as u64,
    })
}

/// Requests that were sent at the same time.
struct Run {
    requests: Vec<Usage>,
    /// From the first sent to the last answered.
    seconds: f64,
}

fn measure(engine: &LocalEngine, kind: Kind) -> anyhow::Result<Run> {
    let Kind { parallel, prompt, answer, .. } = kind;
    let tokens = tokens::arbitrary(prompt * parallel, engine.model().vocabulary);
    let started = Instant::now();
    let sent = tokens.chunks(prompt).map(|prompt| submit(engine, prompt, answer));
    let sent: Vec<Receiver<Event>> = sent.collect::<anyhow::Result<_>>()?;
    let requests = sent.into_iter().map(|events| usage(events, answer)).collect::<anyhow::Result<_>>()?;
    Ok(Run { requests, seconds: started.elapsed().as_secs_f64() })
}

fn submit(engine: &LocalEngine, prompt: &[u32], answer: usize) -> anyhow::Result<Receiver<Event>> {
    let request = GenerateRequest {
        prompt: prompt.to_vec(),
        sampling: SamplingParams::default(),
        max_tokens: answer,
        // Nothing ends the answer early.
        stop_tokens: Vec::new(),
        logprobs: None,
        // One token a pass: arbitrary tokens say nothing about how well drafts are accepted.
        speculation: Speculation { mode: SpeculationMode::Off, depth: 1 },
        session: SessionUse::default(),
        shared_prefix: 0,
    };
    let (sender, events) = mpsc::channel();
    engine.submit(request, Box::new(sender))?;
    Ok(events)
}

fn usage(events: Receiver<Event>, answer: usize) -> anyhow::Result<Usage> {
    for event in events {
        match event {
            Event::Finished { usage, .. } => {
                ensure!(usage.completion_tokens == answer, "the engine stopped early");
                return Ok(usage);
            }
            Event::Failed(error) => return Err(error.into()),
            Event::Queued { .. } | Event::Started { .. } | Event::Prefill { .. } | Event::Tokens(_) => {}
        }
    }
    Err(ds4_engine_api::EngineError::Stopped).context("no measurement")
}

pub(super) struct Figures {
    kind: Kind,
    threads: usize,
    prefill: Spread,
    decode: Spread,
    /// Generated tokens of all requests by the time from the first sent to the last answered.
    together: Spread,
    bytes_per_token: u64,
    /// Bytes per second.
    bandwidth: f64,
    /// The most that arrays ever held: caches and intermediate results, not weights.
    array_bytes: u64,
}

impl Figures {
    /// Bytes of weights per second that decoding reads. Unknown where several requests share what is read.
    fn decode_traffic(&self) -> Option<f64> {
        (self.kind.parallel == 1).then_some(self.decode.median * self.bytes_per_token as f64)
    }

    pub(super) fn for_people(&self) -> String {
        let rate = |bytes: f64| format!("{:.2} GB/s", bytes / 1e9);
        let (read, used) = match self.decode_traffic() {
            Some(bytes) => (
                format!(", {} in all", rate(bytes)),
                format!(", decoding uses {:.0} % of it", 100.0 * bytes / self.bandwidth),
            ),
            None => Default::default(),
        };
        let (each, together) = match self.kind.parallel {
            1 => ("", String::new()),
            count => {
                (" each", format!("together      {}, {count} answers and their prompts\n", self.together))
            }
        };
        format!(
            "prefill       {}, {} tokens{each}\ndecode        {}, {} tokens{each}\n{together}threads       {}\n\
             weights read  {} a token when decoding{read}\n\
             memory reads  {} measured on this machine{used}\n\
             array memory  {} at most, caches included\n",
            self.prefill,
            self.kind.prompt,
            self.decode,
            self.kind.answer,
            self.threads,
            sizes::bytes(self.bytes_per_token),
            rate(self.bandwidth),
            sizes::bytes(self.array_bytes),
        )
    }

    pub(super) fn as_json(&self) -> String {
        let figures = json!({
            "prompt_tokens": self.kind.prompt,
            "generated_tokens": self.kind.answer,
            "parallel": self.kind.parallel,
            "threads": self.threads,
            "prefill_tokens_per_second": self.prefill.as_json(),
            "decode_tokens_per_second": self.decode.as_json(),
            "together_tokens_per_second": self.together.as_json(),
            "weight_bytes_per_token": self.bytes_per_token,
            "decode_bytes_per_second": self.decode_traffic(),
            "read_bytes_per_second": self.bandwidth,
            "peak_array_bytes": self.array_bytes,
        });
        format!("{figures:#}\n")
    }
}
