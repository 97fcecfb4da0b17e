//! `bench`: how fast a model runs here, and how near that is to what the machine allows.
//!
//! Without further flags, requests run through the engine as users send them (`engine_run`). With `--random` or `--parts`,
//! single kinds of passes are measured on the model itself (`suite`), and `--profile` shows where their time goes.

mod engine_run;
mod limits;
mod measure;
mod memory;
mod neighbour;
mod profile;
mod random;
mod report;
mod spread;
mod stage;
mod suite;
mod tokens;

use anyhow::Context as _;
use serde_json::json;

use crate::flags::{BenchFlags, BenchPart};
use crate::{model_loader, output};

use limits::Limits;
use profile::Profile;
use stage::Stage;

/// Rounds of the suite, and runs of the engine, unless the user says otherwise.
const ROUNDS: usize = 5;
const ENGINE_RUNS: usize = 3;

/// Passes of a profile. Its prompt is the one whose speed has a bar.
const PROFILED_STEPS: u32 = 32;
const PROFILED_PROMPTS: u32 = 3;
const PROFILED_PROMPT: usize = 512;
const PROFILED_CONTEXT: usize = 64;

pub(super) fn run(flags: BenchFlags) -> anyhow::Result<()> {
    if flags.spin {
        neighbour::spin();
    }
    if flags.random.is_none() && flags.parts.is_empty() && !flags.profile {
        let runs = flags.repeat.unwrap_or(ENGINE_RUNS);
        return engine_run::run(flags, runs);
    }
    let settings = flags.model.settings();
    let device = settings.device();
    let files = match &flags.random {
        Some(name) => random::checkpoint(name, flags.seed, settings.threads)?,
        None => model_loader::open(&settings.model)?,
    };
    let loaded = model_loader::load(&files, &device, &settings, flags.json)?;
    let stage = Stage::new(loaded, device);
    let text = if flags.profile {
        profile(&stage, flags.json).context("cannot profile the model")?
    } else {
        let all = [
            BenchPart::Prefill,
            BenchPart::Decode,
            BenchPart::Verify,
            BenchPart::Batch,
            BenchPart::Memory,
            BenchPart::Loaded,
        ];
        let parts = if flags.parts.is_empty() { &all[..] } else { &flags.parts };
        let report = suite::run(&stage, parts, flags.repeat.unwrap_or(ROUNDS))?;
        if flags.json {
            format!("{:#}\n", report.as_json(&files.name(), &stage))
        } else {
            report.for_people(&files.name(), &stage)
        }
    };
    output::stdout(&text)?;
    Ok(())
}

fn profile(stage: &Stage, as_json: bool) -> anyhow::Result<String> {
    let limits = Limits::measure(&stage.device)?;
    let mut sequences = [stage.context(PROFILED_CONTEXT)?];
    stage.decode(&mut sequences, 2)?;
    let decode = Profile::of(&stage.device, PROFILED_STEPS, || stage.decode(&mut sequences, 1))?;
    stage.prefill(PROFILED_PROMPT)?;
    let prefill = Profile::of(&stage.device, PROFILED_PROMPTS, || stage.timed_prefill(PROFILED_PROMPT))?;
    if as_json {
        return Ok(format!("{:#}\n", json!({"decode": decode.as_json(), "prefill": prefill.as_json()})));
    }
    let mut text = decode.table(&format!("decode at context {PROFILED_CONTEXT}"), &limits);
    text.push_str(&prefill.table(&format!("prefill of {PROFILED_PROMPT} tokens"), &limits));
    Ok(text)
}
