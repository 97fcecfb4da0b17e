//! `bench`: how fast a model reads a prompt and writes an answer here, and what the machine's memory would allow.

use std::hint::black_box;
use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use ds4_array::Device;
use ds4_engine::{EngineOptions, LocalEngine, SessionOptions};
use ds4_engine_api::{
    Engine, Event, Flow, GenerateRequest, SamplingParams, Speculation, SpeculationMode, Usage,
};
use serde_json::{Value, json};

use super::sizes;
use crate::exit_code::Usage as UsageError;
use crate::flags::BenchFlags;
use crate::{model_loader, output};

/// Larger than the caches of any processor that this is likely to run on.
const BANDWIDTH_BYTES: usize = 256 << 20;
const BANDWIDTH_RUNS: usize = 5;

pub(super) fn run(flags: BenchFlags) -> anyhow::Result<()> {
    let (prompt, answer) = (flags.prompt, flags.r#gen as usize);
    let settings = flags.model.settings();
    let files = model_loader::open(&settings.model)?;
    let device = Device::cpu(settings.threads);
    let loaded = model_loader::load(&files, &device, &settings, flags.json)?;
    let bytes_per_token = loaded.bytes_per_token;
    let options = EngineOptions {
        model_id: files.name(),
        context: settings.context,
        max_waiting: 1,
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
    let runs: Vec<Usage> =
        (0..flags.repeat).map(|_| measure(&engine, prompt, answer)).collect::<Result<_, _>>()?;
    let figures = Figures {
        prompt,
        answer,
        threads: settings.threads,
        prefill: Spread::of(runs.iter().map(Usage::prefill_tokens_per_second)),
        decode: Spread::of(runs.iter().map(Usage::decode_tokens_per_second)),
        bytes_per_token,
        bandwidth: bandwidth(&device),
        array_bytes: device.memory().stats().peak as u64,
    };
    let text = if flags.json { format!("{:#}\n", figures.as_json()) } else { figures.for_people() };
    output::stdout(&text)?;
    Ok(())
}

fn measure(engine: &LocalEngine, prompt: usize, answer: usize) -> anyhow::Result<Usage> {
    let request = GenerateRequest {
        prompt: arbitrary_tokens(prompt, engine.model().vocabulary),
        sampling: SamplingParams::default(),
        max_tokens: answer,
        // Nothing ends the answer early.
        stop_tokens: Vec::new(),
        logprobs: None,
        // One token a pass: arbitrary tokens say nothing about how well drafts are accepted.
        speculation: Speculation { mode: SpeculationMode::Off, depth: 1 },
        session: None,
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

/// Tokens without a pattern, so that experts and table rows are used evenly; the same in each run.
fn arbitrary_tokens(count: usize, vocabulary: usize) -> Vec<u32> {
    // Multiplier and increment of Knuth's MMIX generator; the high bits are the good ones.
    let next = |state: &u64| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    };
    std::iter::successors(next(&0), next)
        .map(|state| ((state >> 33) % vocabulary as u64) as u32)
        .take(count)
        .collect()
}

/// Bytes per second that all threads together read from memory: the best of a few runs.
fn bandwidth(device: &Device) -> f64 {
    let buffer = vec![1_u8; BANDWIDTH_BYTES];
    let run = |_| {
        let started = Instant::now();
        black_box(ds4_cpu_kernels::read_bandwidth(device.kernels(), &buffer));
        buffer.len() as f64 / started.elapsed().as_secs_f64()
    };
    (0..BANDWIDTH_RUNS).map(run).fold(0.0, f64::max)
}

/// Median, least and most of some figures.
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { at(middle) } else { (at(middle.wrapping_sub(1)) + at(middle)) / 2.0 };
        Self { median, least: at(0), most: at(values.len().wrapping_sub(1)) }
    }

    fn as_json(&self) -> Value {
        json!({"median": self.median, "min": self.least, "max": self.most})
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} tokens/s (from {:.1} to {:.1})", self.median, self.least, self.most)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        let median = |values: &[f64]| Spread::of(values.iter().copied()).median;
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        let spread = Spread::of([3.0, 1.0, 2.0].into_iter());
        assert_eq!((spread.least, spread.most), (1.0, 3.0));
    }

    #[test]
    fn arbitrary_tokens_are_in_the_vocabulary_and_spread_over_it() {
        let tokens = arbitrary_tokens(10_000, 16);
        for id in 0..16 {
            let count = tokens.iter().filter(|&&token| token == id).count();
            assert!((400..900).contains(&count), "{id}: {count}");
        }
    }
}
