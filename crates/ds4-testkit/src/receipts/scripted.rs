//! `scripted.jsonl`: 24 runs of MTPLX's generator over tables of logits, replayed cycle by cycle.
//!
//! Row i of a table are the logits of token number i of the whole sequence, prompt included, whatever the context is.
//! Tokens, primaries, drafts, acceptance, corrections, bonus tokens, copied blocks, counters, the number of random draws
//! and the next double are equal; acceptance probabilities agree to 1e-6, since the reference's come from float32 mass.

use super::files::{Fields, records, tensors};
use ds4_sampling::speculative::{
    Correction, CycleOutcome, DepthControl, DepthDecision, DepthSettings, ExpectedValueDepth, FinishReason,
    Plan, SpeculativeConfig, SpeculativeDecoder,
};
use ds4_sampling::{CopySettings, RandomStream, SamplerRule};
use serde_json::Value;
use std::collections::HashMap;

const PROBABILITY: f64 = 1e-6;

/// The table model of one run: `target` and `draft` hold one row per token of the sequence.
struct Table {
    target: Vec<Vec<f32>>,
    draft: Vec<Vec<f32>>,
}

impl Table {
    fn of(record: &Value, stored: &HashMap<String, Vec<f32>>) -> Self {
        let vocabulary = record.u64("vocab") as usize;
        let rows = |argmax: &str, stored_name: &str| -> Vec<Vec<f32>> {
            if record.text("kind") == "greedy" {
                let hot = |token: u32| {
                    let mut row = vec![0.0; vocabulary];
                    row[token as usize] = record.f64("hot") as f32;
                    row
                };
                return record.ids(argmax).into_iter().map(hot).collect();
            }
            let name = format!("{}.{stored_name}", record.text("table"));
            stored[&name].chunks(vocabulary).map(<[f32]>::to_vec).collect()
        };
        Self { target: rows("target_argmax", "target"), draft: rows("draft_argmax", "draft") }
    }

    fn row(rows: &[Vec<f32>], index: usize) -> &[f32] {
        &rows[index.min(rows.len() - 1)]
    }
}

/// Replays all runs. Returns their number.
pub fn replay() -> usize {
    let stored = tensors("scripted_rows.safetensors");
    let records = records("scripted.jsonl");
    assert_eq!(records.len(), 24);
    for record in &records {
        replay_run(record, &Table::of(record, &stored));
    }
    records.len()
}

fn config(record: &Value) -> SpeculativeConfig {
    let sampler = super::sampler::config(record);
    let depth = record.u64("depth") as usize;
    SpeculativeConfig {
        draft: sampler.clone(),
        target: sampler,
        depth: if record["expected_value_policy"].is_null() {
            DepthControl::Fixed(depth)
        } else {
            DepthControl::ExpectedValue(ExpectedValueDepth::new(DepthSettings::new(depth)))
        },
        copy: CopySettings::default(),
        max_tokens: record.u64("max_tokens") as usize,
        stop_tokens: record.ids("stop"),
        // The recorded model cannot keep a prefix of a verified window of drafts.
        correction: Correction::Reforwarded,
    }
}

fn replay_run(record: &Value, table: &Table) {
    let name = format!("{} {} seed {}", record.text("name"), record.text("kind"), record.u64("seed"));
    let prompt = record.ids("prompt");
    let mut decoder = SpeculativeDecoder::new(config(record), &prompt).unwrap();
    let mut cycles = record.list("cycles").iter();
    loop {
        let pending = decoder.pending();
        let position = prompt.len() + decoder.tokens().len();
        let plan = decoder.begin(Table::row(&table.target, position)).unwrap();
        let Some(cycle) = cycles.next() else {
            assert!(matches!(plan, Plan::Finished(_)), "{name}: {plan:?} after the recorded end");
            break;
        };
        let name = format!("{name} step {}", cycle.u64("step"));
        let primary = *decoder.tokens().last().unwrap();
        assert_eq!(u64::from(primary), cycle.u64("primary"), "{name}");
        assert_eq!(pending.is_some(), cycle["primary_already_emitted"].as_bool().unwrap(), "{name}");
        // The primary is the last token so far, and the window's first.
        let start = prompt.len() + decoder.tokens().len() - 1;
        match plan {
            Plan::Finished(_) => {
                assert!(cycle.list("drafts").is_empty() && cycle.get("context_copy").is_none(), "{name}");
            }
            Plan::Copy { block, extension, .. } => {
                let at_tokens = decoder.tokens().len();
                let outcome = decoder.verify(|row| Table::row(&table.target, start + 1 + row), None).unwrap();
                assert_copied(&name, &cycle["context_copy"], (block, extension, at_tokens), &outcome);
            }
            Plan::Draft { depth, .. } => {
                assert!(cycle.get("context_copy").is_none(), "{name}: nothing was copied");
                let mut more = depth > 0;
                let mut decisions = Vec::new();
                while more {
                    let next = start + decoder.window().len();
                    let step = decoder.draft(Table::row(&table.draft, next)).unwrap();
                    decisions.extend(step.decision);
                    more = step.more;
                }
                let window = decoder.window().to_vec();
                let mut rows_read = 0;
                let read = |row: usize| {
                    rows_read += 1;
                    Table::row(&table.target, start + 1 + row)
                };
                let outcome = decoder.verify(read, None).unwrap();
                if let Some(materialised) = cycle.get("target_distribution_materialized") {
                    assert_eq!(rows_read, materialised.u64("rows"), "{name}: target rows");
                }
                assert_drafted(&name, cycle, &window[1..], &outcome);
                assert_policy(&name, cycle, &decisions, decoder.depth());
            }
        }
    }
    assert!(cycles.next().is_none(), "{name}: ended early");
    assert_end(&name, record, decoder);
}

fn assert_copied(
    name: &str,
    expected: &Value,
    (block, extension, at_tokens): (usize, usize, usize),
    outcome: &CycleOutcome,
) {
    assert_eq!(block as u64, expected.u64("block"), "{name}");
    assert_eq!(extension as u64, expected.u64("extension"), "{name}");
    assert_eq!(at_tokens as u64, expected.u64("at_tokens"), "{name}");
    assert_eq!(outcome.accepted as u64, expected.u64("accepted"), "{name}");
    assert_eq!(outcome.correction.map(u64::from), expected["correction"].as_u64(), "{name}");
}

fn assert_drafted(name: &str, cycle: &Value, drafted: &[u32], outcome: &CycleOutcome) {
    let expected: Vec<u32> = cycle.list("drafts").iter().map(|draft| draft.u64("token") as u32).collect();
    assert_eq!(drafted, expected, "{name}");
    assert_eq!(outcome.accepted as u64, cycle.u64("accepted_depths"), "{name}");
    assert_eq!(outcome.bonus.map(u64::from), cycle.get("bonus_token").and_then(Value::as_u64), "{name}");
    let examined: Vec<&Value> =
        cycle.list("drafts").iter().filter(|draft| draft.get("accepted").is_some()).collect();
    assert_eq!(outcome.probabilities.len(), examined.len(), "{name}");
    for (found, draft) in outcome.probabilities.iter().zip(&examined) {
        assert!((found - draft.f64("accept_probability")).abs() < PROBABILITY, "{name}: {found} {draft}");
    }
    if let Some(correction) = outcome.correction {
        assert_eq!(u64::from(correction), examined.last().unwrap().u64("correction"), "{name}");
    }
}

/// The policy's figures: float32 logits enter the confidence, so those agree to 1e-6; averages to 1e-12.
fn assert_policy(name: &str, cycle: &Value, decisions: &[DepthDecision], depth: &DepthControl) {
    let DepthControl::ExpectedValue(policy) = depth else {
        return;
    };
    assert_eq!(decisions.len(), cycle.list("drafts").len(), "{name}");
    for (decision, draft) in decisions.iter().zip(cycle.list("drafts")) {
        let recorded = &draft["policy_continue"];
        let reason = match decision {
            DepthDecision::NotAsked => "below_base_or_at_max",
            DepthDecision::Warmup => "warmup_full_depth",
            DepthDecision::Unobserved => "unobserved_depth",
            DepthDecision::Exploration => "exploration_interval",
            DepthDecision::RemeasureBase => "remeasure_base_cost",
            DepthDecision::Compared { expected, required } => {
                assert!((expected - recorded.f64("expected_extra_accept")).abs() < PROBABILITY, "{name}");
                assert_eq!(*required, recorded.f64("required_extra_accept"), "{name}");
                if expected >= required { "ev_pass" } else { "ev_fail" }
            }
        };
        assert_eq!(reason, recorded.text("reason"), "{name}");
    }
    for (found, recorded) in policy.acceptance().iter().zip(cycle["policy"].f64s("accept_ewma")) {
        assert!((found - recorded).abs() < 1e-12, "{name}");
    }
}

fn assert_end(name: &str, record: &Value, mut decoder: SpeculativeDecoder) {
    assert_eq!(decoder.tokens(), record.ids("tokens"), "{name}");
    let reason = match record.text("finish_reason") {
        "stop" => FinishReason::Stop,
        "length" => FinishReason::Length,
        other => panic!("{other}"),
    };
    assert_eq!(decoder.begin(&[]), Ok(Plan::Finished(reason)), "{name}");

    let mut stream = RandomStream::from_state(decoder.random_state());
    assert_eq!(stream.uniform(), record.f64("rng_next"), "{name}");
    let mut counted = RandomStream::for_rule(SamplerRule::Mtplx, record.u64("seed"));
    for _ in record.list("draws") {
        counted.uniform();
    }
    assert_eq!(counted.state(), decoder.random_state(), "{name}: number of draws");

    let (stats, found, copied) = (&record["stats"], decoder.stats(), decoder.copy().counters());
    for (counted, recorded) in [
        (found.drafted(), "drafted_tokens"),
        (found.accepted(), "accepted_drafts"),
        (found.rejected, "rejected_drafts"),
        (found.bonus, "bonus_tokens"),
        (found.corrections, "correction_tokens"),
        (found.verify_passes, "verify_calls"),
        (copied.probes, "context_copy_probes"),
        (copied.rounds, "context_copy_rounds"),
        (copied.drafted_tokens, "context_copy_drafted_tokens"),
        (copied.accepted_blocks, "context_copy_accepted_blocks"),
        (copied.accepted_tokens, "context_copy_accepted_tokens"),
        (copied.suspensions, "context_copy_suspensions"),
    ] {
        assert_eq!(counted, stats.u64(recorded), "{name}: {recorded}");
    }
    let by_position = |name: &str| -> Vec<u64> { stats.ids(name).into_iter().map(u64::from).collect() };
    assert_eq!(found.drafted_by_position, by_position("drafted_by_depth"), "{name}");
    assert_eq!(found.accepted_by_position, by_position("accepted_by_depth"), "{name}");
    if decoder.copy().is_active() {
        let suspended = decoder.copy().is_suspended(decoder.tokens().len());
        assert_eq!(suspended, stats["context_copy_suspended"].as_bool().unwrap(), "{name}");
        assert_eq!(
            decoder.copy().backoff_tokens() as u64,
            stats.u64("context_copy_backoff_tokens"),
            "{name}"
        );
    }
}
