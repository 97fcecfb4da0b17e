//! `bench`: how fast a model runs here, and how near that is to what the machine allows.
//!
//! Without further flags, requests run through the engine as users send them (`engine_run`), one at a time or several. With
//! `--random` or `--parts` alone, single kinds of passes are measured on the model itself (`suite`), and `--profile` shows
//! where their time goes.

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

use crate::flags::{BenchFlags, BenchPart};
use crate::{model_loader, output};

use limits::Limits;
use measure::Kind;
use profile::Profile;
use stage::Stage;

/// Rounds of the suite, and runs of the engine, unless the user says otherwise.
const ROUNDS: usize = 5;
const ENGINE_RUNS: usize = 3;

/// What the engine is asked unless the user says otherwise.
const PROMPT_TOKENS: usize = 512;
const ANSWER_TOKENS: usize = 128;

/// What is profiled, and in how many passes. All of these have bars.
const PROFILED: [(Kind, u32); 5] = [
    (Kind::Decode { context: 64 }, 32),
    (Kind::Decode { context: 16384 }, 16),
    (Kind::Verify { rows: 4 }, 16),
    (Kind::Batch { sequences: 8 }, 16),
    (Kind::Prefill { tokens: 512 }, 3),
];

pub(super) fn run(flags: BenchFlags) -> anyhow::Result<()> {
    if flags.spin {
        neighbour::spin();
    }
    let asks_the_engine = flags.asks_the_engine();
    let settings = flags.model.settings();
    let device = settings.device();
    let files = match &flags.random {
        Some(name) => random::checkpoint(name, flags.seed, settings.threads)?,
        None => model_loader::open(&settings.model)?,
    };
    let loaded = model_loader::load(&files, &device, &settings, flags.json)?;
    if asks_the_engine {
        let kind = engine_run::Kind {
            parallel: flags.parallel.unwrap_or(1),
            prompt: flags.prompt.unwrap_or(PROMPT_TOKENS),
            answer: flags.r#gen.map_or(ANSWER_TOKENS, |count| count as usize),
            runs: flags.repeat.unwrap_or(ENGINE_RUNS),
        };
        let figures = engine_run::run(kind, &settings, loaded, files.name(), &device)?;
        output::stdout(&if flags.json { figures.as_json() } else { figures.for_people() })?;
        return Ok(());
    }
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
    let (mut tables, mut json) = (String::new(), serde_json::Map::new());
    for (kind, passes) in PROFILED {
        if !kind.fits(stage) {
            continue;
        }
        let mut sequences = kind.sequences(stage)?;
        let mut pass = || suite::pass(stage, kind, &mut sequences);
        pass()?;
        let profile = Profile::of(&stage.device, passes, pass)?;
        tables.push_str(&profile.table(&kind.to_string(), &limits));
        json.insert(kind.to_string(), profile.as_json());
    }
    Ok(if as_json { format!("{:#}\n", serde_json::Value::Object(json)) } else { tables })
}
