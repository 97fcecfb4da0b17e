//! Runs the chosen measures in rounds: each kind once a round, so that a busy minute of the machine spoils no kind alone.

use std::time::Duration;

use ds4_models::SequenceCache;

use crate::flags::BenchPart;

use super::limits::Limits;
use super::measure::{Kind, Measure, SHORT_CONTEXT, STEPS};
use super::neighbour::Neighbour;
use super::profile::Profile;
use super::stage::Stage;
use super::{memory, report::Report};

const PREFILLS: [usize; 3] = [32, 512, 2048];
const CONTEXTS: [usize; 3] = [SHORT_CONTEXT, 2048, 16384];
const VERIFIED_ROWS: [usize; 3] = [2, 4, 8];
const SEQUENCES: [usize; 4] = [1, 2, 4, 8];

pub(super) fn run(stage: &Stage, parts: &[BenchPart], rounds: usize) -> anyhow::Result<Report> {
    let before = Limits::measure(&stage.device)?;
    let peak = if parts.contains(&BenchPart::Memory) { peak_ratio(stage)? } else { None };
    let mut measures = Vec::new();
    for kind in kinds(stage, parts) {
        // Caches are made, and memory is warm, before anything is counted or timed.
        once(stage, kind)?;
        let work = Profile::of(&stage.device, 1, || once(stage, kind))?.work();
        measures.push(Measure::new(kind, work));
    }
    let mut loaded = Vec::new();
    for _ in 0..rounds {
        for measure in &mut measures {
            measure.note(once_averaged(stage, measure.kind)?);
        }
        if parts.contains(&BenchPart::Loaded) {
            loaded.push(loaded_ratio(stage)?);
        }
    }
    let limits = before.or_better(Limits::measure(&stage.device)?);
    Ok(Report { measures, loaded, peak, limits, rounds })
}

fn kinds(stage: &Stage, parts: &[BenchPart]) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for part in parts {
        match part {
            BenchPart::Prefill => kinds.extend(PREFILLS.map(|tokens| Kind::Prefill { tokens })),
            BenchPart::Decode => kinds.extend(CONTEXTS.map(|context| Kind::Decode { context })),
            BenchPart::Verify => kinds.extend(VERIFIED_ROWS.map(|rows| Kind::Verify { rows })),
            BenchPart::Batch => kinds.extend(SEQUENCES.map(|sequences| Kind::Batch { sequences })),
            BenchPart::Memory | BenchPart::Loaded => {}
        }
    }
    // Ratios need what they are ratios to.
    let reference = Kind::Decode { context: SHORT_CONTEXT };
    if parts.contains(&BenchPart::Verify) && !kinds.contains(&reference) {
        kinds.push(reference);
    }
    kinds.retain(|kind| kind.fits(stage));
    kinds
}

/// One pass, or one prompt, on fresh caches.
fn once(stage: &Stage, kind: Kind) -> anyhow::Result<Duration> {
    pass(stage, kind, &mut kind.sequences(stage)?)
}

/// The time of a pass, averaged over several if it is short.
fn once_averaged(stage: &Stage, kind: Kind) -> anyhow::Result<Duration> {
    let mut sequences = kind.sequences(stage)?;
    // Caches are copies of others until their first pass.
    if !sequences.is_empty() {
        pass(stage, kind, &mut sequences)?;
    }
    match kind {
        Kind::Prefill { .. } => pass(stage, kind, &mut sequences),
        _ => Ok((0..STEPS).map(|_| pass(stage, kind, &mut sequences)).sum::<anyhow::Result<Duration>>()?
            / STEPS as u32),
    }
}

/// The time of one pass over the sequences of its kind.
pub(super) fn pass(stage: &Stage, kind: Kind, sequences: &mut [SequenceCache]) -> anyhow::Result<Duration> {
    match kind {
        Kind::Prefill { tokens } => stage.timed_prefill(tokens),
        Kind::Decode { .. } | Kind::Batch { .. } => stage.decode(sequences),
        Kind::Verify { rows } => stage.verify(sequences, rows),
    }
}

/// Speed of decoding with a neighbour as a share of that without, one right after the other.
fn loaded_ratio(stage: &Stage) -> anyhow::Result<f64> {
    let kind = Kind::Decode { context: SHORT_CONTEXT };
    let alone = once_averaged(stage, kind)?;
    let neighbour = Neighbour::start()?;
    let beside = once_averaged(stage, kind)?;
    drop(neighbour);
    Ok(alone.as_secs_f64() / beside.as_secs_f64())
}

/// The largest memory of reading a prompt and decoding after a long context, as a multiple of what has to be held: all
/// weights and the caches of that context.
fn peak_ratio(stage: &Stage) -> anyhow::Result<Option<f64>> {
    let longest = CONTEXTS.into_iter().rfind(|context| context + STEPS <= stage.loaded.model.max_context());
    let Some(context) = longest else { return Ok(None) };
    if !memory::reset_peak() {
        return Ok(None);
    }
    let mut sequences = [stage.fresh_context(context)?];
    for _ in 0..STEPS {
        stage.decode(&mut sequences)?;
    }
    let needed = stage.loaded.weight_bytes + sequences[0].bytes() as u64;
    Ok(memory::peak().map(|peak| peak as f64 / needed as f64))
}
