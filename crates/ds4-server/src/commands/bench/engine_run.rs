//! A prompt and its answer through the engine, as a request takes them, beside what the machine's memory would allow.

use std::sync::mpsc;

use anyhow::{Context as _, ensure};
use ds4_engine::{EngineOptions, LocalEngine, RequestLimits, SessionOptions};
use ds4_engine_api::{
    Engine, Event, Flow, GenerateRequest, SamplingParams, SessionUse, Speculation, SpeculationMode, Usage,
};
use serde_json::{Value, json};

use super::super::sizes;
use super::limits::Limits;
use super::spread::Spread;
use super::tokens;
use crate::exit_code::Usage as UsageError;
use crate::flags::BenchFlags;
use crate::{model_loader, output};

pub(super) fn run(flags: BenchFlags, count: usize) -> anyhow::Result<()> {
    let (prompt, answer) = (flags.prompt, flags.r#gen as usize);
    let settings = flags.model.settings();
    let files = model_loader::open(&settings.model)?;
    let device = settings.device();
    let loaded = model_loader::load(&files, &device, &settings, flags.json)?;
    let bytes_per_token = loaded.bytes_per_token;
    let options = EngineOptions {
        model_id: files.name(),
        context: settings.context,
        requests: RequestLimits::ONE,
        // Repetitions are to be computed, not remembered.
        sessions: SessionOptions::default(),
    };
    let engine = LocalEngine::start(loaded, options);
    let (context, needed) = (engine.model().context, prompt + answer);
    if needed > context {
        let message = format!("--prompt and --gen are {needed} tokens together, the context has {context}");
        return Err(UsageError(message).into());
    }

    // The first run pays for memory that later ones use again, and teaches the engine its chunk size.
    measure(&engine, prompt, answer)?;
    let runs: Vec<Usage> = (0..count).map(|_| measure(&engine, prompt, answer)).collect::<Result<_, _>>()?;
    let figures = Figures {
        prompt,
        answer,
        threads: settings.threads,
        prefill: Spread::of(runs.iter().map(Usage::prefill_tokens_per_second)),
        decode: Spread::of(runs.iter().map(Usage::decode_tokens_per_second)),
        bytes_per_token,
        bandwidth: Limits::measure(&device)?.bandwidth,
        array_bytes: device.memory().stats().peak as u64,
    };
    let text = if flags.json { format!("{:#}\n", figures.as_json()) } else { figures.for_people() };
    output::stdout(&text)?;
    Ok(())
}

fn measure(engine: &LocalEngine, prompt: usize, answer: usize) -> anyhow::Result<Usage> {
    let request = GenerateRequest {
        prompt: tokens::arbitrary(prompt, engine.model().vocabulary),
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
    let sink = move |event| if sender.send(event).is_ok() { Flow::Continue } else { Flow::Stop };
    engine.submit(request, Box::new(sink))?;
    for event in events {
        match event {
            Event::Finished { usage, .. } => {
                ensure!(usage.completion_tokens == answer, "the engine stopped early");
                return Ok(usage);
            }
            Event::Failed(error) => return Err(error.into()),
            Event::Queued { .. } | Event::Started { .. } | Event::Prefill { .. } | Event::Token { .. } => {}
        }
    }
    Err(ds4_engine_api::EngineError::Stopped).context("no measurement")
}

struct Figures {
    prompt: usize,
    answer: usize,
    threads: usize,
    prefill: Spread,
    decode: Spread,
    bytes_per_token: u64,
    /// Bytes per second.
    bandwidth: f64,
    /// The most that arrays ever held: caches and intermediate results, not weights.
    array_bytes: u64,
}

impl Figures {
    /// Bytes of weights per second that decoding reads.
    fn decode_traffic(&self) -> f64 {
        self.decode.median * self.bytes_per_token as f64
    }

    fn for_people(&self) -> String {
        let rate = |bytes: f64| format!("{:.2} GB/s", bytes / 1e9);
        format!(
            "prefill       {}, {} tokens\ndecode        {}, {} tokens\nthreads       {}\n\
             weights read  {} a token when decoding, {} in all\n\
             memory reads  {} measured on this machine, decoding uses {:.0} % of it\n\
             array memory  {} at most, caches included\n",
            self.prefill,
            self.prompt,
            self.decode,
            self.answer,
            self.threads,
            sizes::bytes(self.bytes_per_token),
            rate(self.decode_traffic()),
            rate(self.bandwidth),
            100.0 * self.decode_traffic() / self.bandwidth,
            sizes::bytes(self.array_bytes),
        )
    }

    fn as_json(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "generated_tokens": self.answer,
            "threads": self.threads,
            "prefill_tokens_per_second": self.prefill.as_json(),
            "decode_tokens_per_second": self.decode.as_json(),
            "weight_bytes_per_token": self.bytes_per_token,
            "decode_bytes_per_second": self.decode_traffic(),
            "read_bytes_per_second": self.bandwidth,
            "peak_array_bytes": self.array_bytes,
        })
    }
}
