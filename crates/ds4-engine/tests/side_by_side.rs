//! Several requests at once, on the demo models: answers have the bits that they have alone, prompts are read while others
//! answer, and what is being computed for one is not computed again for the next.
#![allow(clippy::unwrap_used, reason = "tests only")]

mod support;

use std::sync::mpsc::{Receiver, channel};

use ds4_engine::{LocalEngine, RequestLimits, SessionOptions};
use ds4_engine_api::{
    Engine, Event, EventSink, Flow, GenerateRequest, SamplingParams, SessionUse, Speculation,
    SpeculationMode, Token, Usage,
};

use support::{demo_engine, tokens};

fn engine(demo: &str, parallel: usize, memory_bytes: u64) -> LocalEngine {
    let requests = RequestLimits { parallel, waiting: 16, caches: None };
    demo_engine(demo, requests, SessionOptions { memory_bytes, disk: None })
}

/// A request for an answer of 40 tokens to some prompt.
fn request(seed: u32, prompt_tokens: usize, mode: SpeculationMode, temperature: f64) -> GenerateRequest {
    GenerateRequest {
        prompt: tokens(seed, prompt_tokens),
        sampling: SamplingParams { temperature, seed: Some(u64::from(seed)), ..SamplingParams::default() },
        max_tokens: 40,
        stop_tokens: Vec::new(),
        logprobs: Some(2),
        speculation: Speculation { mode, depth: 3 },
        session: SessionUse::default(),
        shared_prefix: 0,
    }
}

fn submit(engine: &LocalEngine, request: GenerateRequest) -> Receiver<Event> {
    support::submit(engine, request).1
}

fn answer(events: Receiver<Event>) -> (Vec<Token>, Usage) {
    let mut tokens = Vec::new();
    for event in events {
        match event {
            Event::Tokens(more) => tokens.extend(more),
            Event::Finished { usage, .. } => return (tokens, usage),
            Event::Failed(error) => panic!("{error}"),
            Event::Queued { .. } | Event::Started { .. } | Event::Prefill { .. } => {}
        }
    }
    panic!("no end")
}

#[test]
fn answers_have_the_bits_that_they_have_alone() {
    let kinds = [
        (SpeculationMode::Auto, 0.0),
        (SpeculationMode::Auto, 1.0),
        (SpeculationMode::Mtp, 0.0),
        (SpeculationMode::Mtp, 1.0),
        (SpeculationMode::Both, 0.0),
        (SpeculationMode::Off, 1.0),
    ];
    for demo in ["qwen4_exp", "deepseek_v4", "glm5_next"] {
        // Prompts of one chunk and of several, so that some are read while others answer.
        let requests = kinds.iter().enumerate().map(|(i, &(mode, temperature))| {
            request(i as u32 + 1, [3, 700, 40, 333, 129, 1][i], mode, temperature)
        });
        let requests: Vec<_> = requests.collect();
        let alone = engine(demo, 1, 0);
        let expected: Vec<_> =
            requests.iter().map(|request| answer(submit(&alone, request.clone())).0).collect();
        for parallel in [2, 6] {
            let together = engine(demo, parallel, 0);
            let running: Vec<_> = requests.iter().map(|request| submit(&together, request.clone())).collect();
            for (i, (events, expected)) in running.into_iter().zip(&expected).enumerate() {
                assert_eq!(&answer(events).0, expected, "{demo}, request {i}, {parallel} at a time");
            }
        }
    }
}

/// What one request leaves in memory must not change what another one draws: here a state without drafts.
#[test]
fn a_seed_gives_the_same_tokens_whoever_left_the_state() {
    let sampled = |mode| request(7, 300, mode, 1.0);
    let expected = answer(submit(&engine("qwen4_exp", 1, 0), sampled(SpeculationMode::Mtp)));
    assert!(expected.1.speculation.drafted > 0);
    for left_by in [SpeculationMode::Off, SpeculationMode::Copy, SpeculationMode::Mtp] {
        let engine = engine("qwen4_exp", 2, 1 << 30);
        let first = submit(&engine, GenerateRequest { max_tokens: 1, ..sampled(left_by) });
        let second = answer(submit(&engine, sampled(SpeculationMode::Mtp)));
        answer(first);
        assert_eq!((second.0, second.1.cached_tokens), (expected.0.clone(), 299), "{left_by:?}");
    }
}

/// Holds the engine at its first event until the other end is gone.
struct Gate(Receiver<()>);

impl EventSink for Gate {
    fn send(&mut self, _: Event) -> Flow {
        let _ = self.0.recv();
        Flow::Continue
    }
}

#[test]
fn nobody_waits_for_a_state_that_is_not_kept() {
    // Room for nothing. A listener holds the engine until all are there.
    let engine = engine("qwen4_exp", 4, 1);
    let (open, gate) = channel();
    engine.submit(request(9, 5, SpeculationMode::Off, 0.0), Box::new(Gate(gate))).unwrap();
    let (sender, events) = channel();
    for _ in 0..3 {
        engine.submit(request(1, 2500, SpeculationMode::Off, 0.0), Box::new(sender.clone())).unwrap();
    }
    drop((open, sender));
    let (mut started, mut ended) = (0, 0);
    for event in events {
        match event {
            Event::Started { .. } => started += 1,
            Event::Prefill { done, .. } => assert!(started == 3 || done < 1500, "{started} at {done} tokens"),
            Event::Finished { .. } => ended += 1,
            Event::Failed(error) => panic!("{error}"),
            Event::Queued { .. } | Event::Tokens(_) => {}
        }
    }
    assert_eq!(ended, 3);
}

#[test]
fn a_long_prompt_does_not_hold_up_an_answer() {
    let engine = engine("qwen4_exp", 2, 0);
    let long = submit(&engine, request(1, 3000, SpeculationMode::Off, 0.0));
    let short = submit(&engine, request(2, 5, SpeculationMode::Off, 0.0));
    assert_eq!(answer(short).0.len(), 40);
    let is_token = |event: Result<Event, _>| matches!(event, Ok(Event::Tokens(_)));
    assert!(!is_token(long.try_recv()) && engine.status().running == 1);
    assert_eq!(answer(long).0.len(), 40);
}

#[test]
fn a_prompt_waits_for_the_one_that_it_begins_like() {
    let engine = engine("qwen4_exp", 4, 1 << 30);
    let first = request(1, 900, SpeculationMode::Auto, 0.0);
    let others: Vec<_> = (2..5)
        .map(|seed| {
            let mut other = request(seed, 20, SpeculationMode::Auto, 0.0);
            other.prompt.splice(0..0, first.prompt[..800].iter().copied());
            other.shared_prefix = 800;
            other
        })
        .collect();
    let running: Vec<_> = std::iter::once(GenerateRequest { shared_prefix: 800, ..first })
        .chain(others)
        .map(|request| submit(&engine, request))
        .collect();
    let cached: Vec<_> = running.into_iter().map(|events| answer(events).1.cached_tokens).collect();
    assert_eq!(cached, [0, 800, 800, 800]);
    assert_eq!(engine.status().prefill_tokens, 900 + 3 * 20);
}
