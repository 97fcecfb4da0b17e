//! Requests of all kinds that come, go and share what they begin with, at random: each answer has the bits that the request
//! would have alone, and nothing is left of those that have ended.
#![allow(clippy::unwrap_used, reason = "tests only")]

mod support;

use std::sync::mpsc::Receiver;
use std::time::Duration;

use ds4_engine::{LocalEngine, RequestLimits, SessionOptions};
use ds4_engine_api::{
    CancelToken, Engine, Event, FinishReason, GenerateRequest, SamplingParams, SessionUse, Speculation,
    SpeculationMode, Token,
};
use proptest::prelude::*;
use proptest::sample::select;

use support::{demo_engine, submit};

fn engine(demo: &str, parallel: usize, memory_bytes: u64) -> LocalEngine {
    let requests = RequestLimits { parallel, waiting: 64, caches: None };
    demo_engine(demo, requests, SessionOptions { memory_bytes, disk: None })
}

/// What happens after a request was sent.
#[derive(Clone, Copy, Debug)]
enum Then {
    Next,
    Pause(u64),
    Cancel(usize),
    Remove(u8),
}

/// The session of that number.
fn session(number: u8) -> String {
    format!("session-{number}")
}

/// A request for an answer to a prompt that begins like others, and what happens then.
fn sent() -> impl Strategy<Value = (GenerateRequest, Then)> {
    let modes = [
        SpeculationMode::Auto,
        SpeculationMode::Off,
        SpeculationMode::Mtp,
        SpeculationMode::Copy,
        SpeculationMode::Both,
    ];
    let prompt = (0..2u32, select(vec![1, 5, 255, 256, 257, 600]), prop::collection::vec(10..410u32, 0..20));
    let speculation = (select(modes.to_vec()), 1..=5usize);
    let sampling = (select(vec![0.0, 0.7]), any::<u64>());
    let kept = (prop::option::of(0..3u8), prop::bool::weighted(0.8), any::<bool>());
    let then = prop_oneof![
        3 => Just(Then::Next),
        1 => (0..100u64).prop_map(Then::Pause),
        1 => (0..20usize).prop_map(Then::Cancel),
        1 => (0..3u8).prop_map(Then::Remove),
    ];
    (prompt, speculation, sampling, kept, 1..60usize, then).prop_map(
        |(
            (base, shared, own),
            (mode, depth),
            (temperature, seed),
            (id, keeps, is_prefix),
            max_tokens,
            then,
        )| {
            let beginning = (0..shared).map(|i| 10 + (i * 7 + base * 131 + i * i % 11) % 400);
            let request = GenerateRequest {
                prompt: beginning.chain(own).collect(),
                sampling: SamplingParams { temperature, seed: Some(seed), ..SamplingParams::default() },
                max_tokens,
                stop_tokens: vec![2],
                logprobs: Some(2),
                speculation: Speculation { mode, depth },
                session: SessionUse { id: id.map(session), keeps, ..SessionUse::default() },
                shared_prefix: if is_prefix { shared as usize } else { 0 },
            };
            (request, then)
        },
    )
}

type Answer = (Vec<Token>, FinishReason);

fn answer(events: &Receiver<Event>) -> Answer {
    let mut tokens = Vec::new();
    loop {
        match events.recv_timeout(Duration::from_secs(100)).expect("an answer in time") {
            Event::Tokens(more) => tokens.extend(more),
            Event::Finished { reason, .. } => return (tokens, reason),
            Event::Failed(error) => panic!("{error}"),
            Event::Queued { .. } | Event::Started { .. } | Event::Prefill { .. } => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn no_answer_depends_on_its_company(
        demo in select(vec!["qwen4_exp", "qwen4_exp", "deepseek_v4", "glm5_next"]),
        parallel in 1..7usize,
        memory in select(vec![0, 3 << 20, 1 << 30]),
        requests in prop::collection::vec(sent(), 4..14),
    ) {
        let alone = engine(demo, 1, 0);
        let expected: Vec<Answer> =
            requests.iter().map(|(request, _)| answer(&submit(&alone, request.clone()).1)).collect();
        let together = engine(demo, parallel, memory);
        let mut running: Vec<(CancelToken, Receiver<Event>)> = Vec::new();
        for (request, then) in &requests {
            running.push(submit(&together, request.clone()));
            match *then {
                Then::Next => {}
                Then::Pause(milliseconds) => std::thread::sleep(Duration::from_millis(milliseconds)),
                Then::Cancel(which) => running[which % running.len()].0.cancel(),
                Then::Remove(number) => drop(together.remove_session(&session(number)).unwrap()),
            }
        }
        for ((_, events), (tokens, reason)) in running.iter().zip(&expected) {
            let (came, ended) = answer(events);
            if ended == FinishReason::Cancelled {
                prop_assert_eq!(&came[..], &tokens[..came.len()]);
            } else {
                prop_assert_eq!((&came, ended), (tokens, *reason));
            }
        }
        let status = together.status();
        prop_assert_eq!((status.running, status.waiting, status.cache_bytes, status.failed), (0, 0, 0, 0));
        prop_assert_eq!(status.completed as usize, requests.len());
    }
}
