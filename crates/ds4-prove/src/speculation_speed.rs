//! How much faster speculation makes the demo model, and that it never makes it slower.
//!
//! All combinations of workload and mode run in turn, so that a busy machine slows all of them alike; figures are medians
//! over the turns of ratios within one turn.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use ds4_array::{Array, eval};
use ds4_engine_api::{GenerateRequest, SamplingParams, Speculation, SpeculationMode, Usage};
use ds4_models::{BatchSegment, LogitRows};
use ds4_testkit::receipts::generations::{Recording, answer};
use ds4_text::{ChatPrompt, Message, Role};
use serde_json::{Value, json};

use crate::report::Report;
use crate::samples::demo_text;
use crate::speculation::{demo, engine, pseudo_random};

/// Tokens of an answer that nothing else ends.
const LONG: usize = 300;

/// The least speed of the automatic mode on any workload, against plain decoding.
const NEVER_BELOW: f64 = 0.97;

/// The least speed-up on tasks for which speculation is made.
const WANTED: f64 = 1.5;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Turns.
    #[arg(long, default_value_t = 9)]
    runs: usize,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

struct Workload {
    name: &'static str,
    request: GenerateRequest,
    /// Least speed-up of the automatic mode.
    least: f64,
}

struct Mode {
    name: String,
    speculation: Speculation,
}

/// What the turns of one combination came to.
#[derive(Default)]
struct Measured {
    seconds: Vec<f64>,
    speedups: Vec<f64>,
    usage: Usage,
}

pub(crate) fn run(report: &mut Report, options: &Options) -> anyhow::Result<()> {
    let passes = passes(options.runs)?;
    for (pass, seconds) in &passes {
        println!("{pass}: {:.3} ms", seconds * 1e3);
    }
    let engine = engine(demo()?);
    let (workloads, modes) = (workloads()?, modes());
    let mut table: Vec<Vec<Measured>> =
        workloads.iter().map(|_| modes.iter().map(|_| Measured::default()).collect()).collect();
    for turn in 0..=options.runs {
        for (workload, row) in workloads.iter().zip(&mut table) {
            let mut plain = 0.0;
            for (mode, measured) in modes.iter().zip(row) {
                let request = GenerateRequest { speculation: mode.speculation, ..workload.request.clone() };
                measured.usage = answer(&engine, request).usage;
                let per_token =
                    measured.usage.decode_seconds / (measured.usage.completion_tokens.max(2) - 1) as f64;
                if mode.speculation.mode == SpeculationMode::Off {
                    plain = per_token;
                }
                // The first turn warms up.
                if turn > 0 {
                    measured.seconds.push(per_token);
                    measured.speedups.push(plain / per_token);
                }
            }
        }
    }
    print_table(&workloads, &modes, &table);
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&json(&passes, &workloads, &modes, &table))?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    for (workload, row) in workloads.iter().zip(&table) {
        let speedup = row
            .iter()
            .zip(&modes)
            .find(|(_, mode)| mode.speculation.mode == SpeculationMode::Auto)
            .map_or(0.0, |(measured, _)| median(&measured.speedups));
        let item = format!("automatic speculation, {}", workload.name);
        let figure = format!("{speedup:.2}x of plain decoding, at least {:.2}x wanted", workload.least);
        if speedup >= workload.least { report.passed(&item, &figure) } else { report.failed(&item, &figure) }
    }
    Ok(())
}

/// Modes in the order in which they run: plain decoding first, since the others are measured against it.
fn modes() -> Vec<Mode> {
    let mode =
        |name: &str, mode, depth| Mode { name: name.to_owned(), speculation: Speculation { mode, depth } };
    let mut modes = vec![mode("plain", SpeculationMode::Off, 1), mode("auto", SpeculationMode::Auto, 3)];
    modes.extend((1..=5).map(|depth| mode(&format!("mtp {depth}"), SpeculationMode::Mtp, depth)));
    modes.push(mode("copy", SpeculationMode::Copy, 3));
    modes.push(mode("both 3", SpeculationMode::Both, 3));
    modes
}

fn workloads() -> anyhow::Result<Vec<Workload>> {
    let recording = Recording::load();
    let task = |name, prompt: &str, least| Workload { name, request: recording.greedy(prompt, LONG), least };
    let story = GenerateRequest {
        prompt: chat("Write a short story about a lighthouse.")?,
        ..recording.greedy("prime", LONG)
    };
    let endless = GenerateRequest { stop_tokens: Vec::new(), ..story.clone() };
    let random = GenerateRequest { prompt: pseudo_random(200), ..endless.clone() };
    let hot = GenerateRequest {
        sampling: SamplingParams { temperature: 1.5, seed: Some(7), ..SamplingParams::default() },
        ..endless.clone()
    };
    let fresh = GenerateRequest {
        sampling: SamplingParams {
            presence_penalty: 2.0,
            frequency_penalty: 2.0,
            ..SamplingParams::default()
        },
        ..endless
    };
    let adverse = |name, request| Workload { name, request, least: NEVER_BELOW };
    Ok(vec![
        Workload { name: "story", request: story, least: NEVER_BELOW },
        task("python", "prime", WANTED),
        task("python again", "prime_again", WANTED),
        task("summary", "summary", WANTED),
        task("ping", "ping", NEVER_BELOW),
        adverse("random prompt", random),
        adverse("temperature 1.5", hot),
        adverse("nothing twice", fresh),
    ])
}

/// Token ids of a question to the demo model.
fn chat(question: &str) -> anyhow::Result<Vec<u32>> {
    let text = demo_text("qwen4_exp")?;
    Ok(text.render_chat(&ChatPrompt::new(vec![Message::new(Role::User, question)]))?.tokens)
}

/// What single passes take, in seconds.
fn passes(runs: usize) -> anyhow::Result<Vec<(&'static str, f64)>> {
    let loaded = demo()?;
    let (model, head) = (&*loaded.model, loaded.model.draft_head().context("no draft head")?);
    let prompt = pseudo_random(128);
    let mut cache = model.new_cache();
    let pass = |tokens: &[u32], cache: &mut _| {
        model.forward(&mut [BatchSegment { tokens, cache, logits: LogitRows::All }])
    };
    let streams = pass(&prompt, &mut cache)?.streams.context("no streams")?;
    let mut history = head.new_cache();
    head.build(&ds4_array::ops::slice_rows(&streams, 0, 127)?, &prompt[1..], &mut history)?;
    eval(&history.pending().iter().collect::<Vec<_>>())?;
    let newest = ds4_array::ops::copy(&ds4_array::ops::slice_rows(&streams, 127, 1)?)?;
    let mut times: [(&'static str, Vec<f64>); 6] = [
        ("plain step", Vec::new()),
        ("check of 2 rows", Vec::new()),
        ("check of 4 rows", Vec::new()),
        ("check of 6 rows", Vec::new()),
        ("taking back 2 of 4 rows", Vec::new()),
        ("draft", Vec::new()),
    ];
    for _ in 0..20 * runs {
        for (at, rows) in [(0, 1), (1, 2), (2, 4), (3, 6)] {
            let mut cache = cache.clone();
            pass(&prompt[..1], &mut cache)?;
            let started = Instant::now();
            cache.begin_window();
            pass(&prompt[..rows], &mut cache)?;
            times[at].1.push(started.elapsed().as_secs_f64());
            if rows == 4 {
                let started = Instant::now();
                cache.commit_window(2)?;
                eval(&cache.pending().iter().collect::<Vec<_>>())?;
                times[4].1.push(started.elapsed().as_secs_f64());
            }
        }
        let mut branch = history.clone();
        let started = Instant::now();
        let streams = head.build(&newest, &prompt[..1], &mut branch)?;
        let logits = head.logits(&streams)?;
        let mut arrays: Vec<Array> = branch.pending();
        arrays.push(logits);
        eval(&arrays.iter().collect::<Vec<_>>())?;
        times[5].1.push(started.elapsed().as_secs_f64());
    }
    Ok(times.into_iter().map(|(name, times)| (name, median(&times))).collect())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Accepted drafts and copied tokens a pass.
fn accepted_per_pass(usage: &Usage) -> f64 {
    let did = &usage.speculation;
    (did.accepted + did.copied) as f64 / did.verify_passes.max(1) as f64
}

fn tokens_per_pass(usage: &Usage) -> f64 {
    usage.completion_tokens as f64 / usage.speculation.verify_passes.max(1) as f64
}

fn print_table(workloads: &[Workload], modes: &[Mode], table: &[Vec<Measured>]) {
    println!("\nspeed-up over plain decoding (accepted a pass, tokens a pass)\n");
    let names: Vec<&str> = modes.iter().map(|mode| mode.name.as_str()).collect();
    println!("| workload | tokens | tok/s plain | {} |", names[1..].join(" | "));
    println!("|---|---|---|{}", "---|".repeat(names.len() - 1));
    for (workload, row) in workloads.iter().zip(table) {
        let cells: Vec<String> = row[1..]
            .iter()
            .map(|measured| {
                let usage = &measured.usage;
                let (accepted, tokens) = (accepted_per_pass(usage), tokens_per_pass(usage));
                format!("{:.2}x ({accepted:.2}, {tokens:.2})", median(&measured.speedups))
            })
            .collect();
        let (tokens, speed) = (row[0].usage.completion_tokens, 1.0 / median(&row[0].seconds));
        println!("| {} | {tokens} | {speed:.0} | {} |", workload.name, cells.join(" | "));
    }
    println!();
}

fn json(passes: &[(&str, f64)], workloads: &[Workload], modes: &[Mode], table: &[Vec<Measured>]) -> Value {
    let cell = |(mode, measured): (&Mode, &Measured)| {
        let did = &measured.usage.speculation;
        let value = json!({
            "tokens": measured.usage.completion_tokens,
            "tokens_per_second": 1.0 / median(&measured.seconds),
            "speedup": median(&measured.speedups),
            "accepted_per_pass": accepted_per_pass(&measured.usage),
            "tokens_per_pass": tokens_per_pass(&measured.usage),
            "draft_seconds": did.draft_seconds,
            "verify_seconds": did.verify_seconds,
            "repair_seconds": did.repair_seconds,
        });
        (mode.name.clone(), value)
    };
    let row = |(workload, row): (&Workload, &Vec<Measured>)| {
        (workload.name.to_owned(), modes.iter().zip(row).map(cell).collect::<serde_json::Map<_, _>>().into())
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    json!({
        "model": "demo/qwen4_exp",
        "cores": cores,
        "turns": table[0][0].seconds.len(),
        "pass_milliseconds": passes.iter().map(|(n, s)| ((*n).to_owned(), json!(s * 1e3))).collect::<serde_json::Map<_, _>>(),
        "workloads": workloads.iter().zip(table).map(row).collect::<serde_json::Map<_, Value>>(),
    })
}
