//! Speculation on the demo model: whole generations equal MTPLX's recordings, and greedy answers are the same with and
//! without it. The replays are in `ds4-testkit`.
#![allow(clippy::unwrap_used, reason = "tests only")]

mod support;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};

use ds4_engine::{LocalEngine, RequestLimits, SessionOptions};
use ds4_engine_api::{
    Engine, Event, EventSink, Flow, GenerateRequest, SamplingParams, Speculation, SpeculationMode,
    SpeculationUsage,
};
use ds4_testkit::receipts::generations::{self, Recording, answer};

use support::demo_engine;

fn engine() -> LocalEngine {
    let requests = RequestLimits { parallel: 4, waiting: 4, caches: None };
    demo_engine("qwen4_exp", requests, SessionOptions::default())
}

#[test]
fn whole_generations_equal_those_of_mtplx() {
    let (replayed, _) = generations::replay(&engine());
    assert!(replayed >= 30, "{replayed}");
}

#[test]
fn a_greedy_answer_is_the_same_with_and_without_speculation() {
    generations::greedy_equality(&engine());
}

#[test]
fn a_sampled_answer_reproduces_with_its_seed_in_the_automatic_mode() {
    let engine = engine();
    let request = GenerateRequest {
        sampling: SamplingParams {
            temperature: 1.0,
            top_p: 0.95,
            top_k: 20,
            seed: Some(5),
            ..SamplingParams::default()
        },
        speculation: Speculation::default(),
        ..Recording::load().greedy("prime", 120)
    };
    let first = answer(&engine, request.clone()).tokens;
    for _ in 0..3 {
        assert_eq!(answer(&engine, request.clone()).tokens, first);
    }
}

#[test]
fn usage_tells_what_speculation_did() {
    let engine = engine();
    let speculation = Speculation { mode: SpeculationMode::Mtp, depth: 3 };
    let request = GenerateRequest { speculation, ..Recording::load().greedy("prime", 200) };
    let answer = answer(&engine, request);
    let (did, tokens) = (&answer.usage.speculation, answer.tokens.len() as u64);
    assert_eq!(did.accepted, did.accepted_by_position.iter().sum::<u64>());
    assert!(did.cycles > 0 && did.accepted * 2 > did.drafted, "{did:?}");
    assert!(did.corrections > 0 && did.bonus + did.corrections <= did.verify_passes, "{did:?}");
    assert!(did.verify_passes < tokens / 2, "{did:?} for {tokens} tokens");
    assert!(did.draft_seconds > 0.0 && did.verify_seconds > 0.0);
    let status = engine.status().speculation;
    // Times are sums of the same terms in another order.
    let rounded = |did: &SpeculationUsage| {
        let microseconds = |seconds: f64| (seconds * 1e6).round();
        SpeculationUsage {
            draft_seconds: microseconds(did.draft_seconds),
            verify_seconds: microseconds(did.verify_seconds),
            repair_seconds: microseconds(did.repair_seconds),
            ..did.clone()
        }
    };
    assert_eq!(rounded(&status), rounded(did));
}

/// Notes at each token what the engine's status says of passes.
struct Watching(Weak<LocalEngine>, Sender<u64>);

impl EventSink for Watching {
    fn send(&mut self, event: Event) -> Flow {
        if let (Event::Tokens(_), Some(engine)) = (event, self.0.upgrade()) {
            self.1.send(engine.status().speculation.verify_passes).unwrap();
        }
        Flow::Continue
    }
}

#[test]
fn the_status_moves_while_an_answer_runs() {
    let engine = Arc::new(engine());
    let (sender, seen) = channel();
    let watching = Box::new(Watching(Arc::downgrade(&engine), sender));
    engine.submit(Recording::load().greedy("prime", 200), watching).unwrap();
    let seen: Vec<u64> = seen.iter().collect();
    assert!(seen.is_sorted() && seen.first() < seen.last(), "{seen:?}");
}
