//! The engine over a scripted model: order of events, endings, queue, cancellation, errors, seeds.
#![allow(clippy::unwrap_used, reason = "tests only")]

mod support;

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use ds4_array::{Array, Device, Stream};
use ds4_engine::{CacheLimit, EngineOptions, LocalEngine, RequestLimits, SessionOptions};
use ds4_engine_api::{
    CancelToken, Engine, EngineError, Event, FinishReason, Flow, GenerateRequest, SamplingParams, SessionUse,
    Speculation, Token,
};
use ds4_models::{
    BatchSegment, CacheSize, CausalLm, Forward, LayerDecisions, LoadedModel, LogitRows, ModelError,
    SamplerRule, SequenceCache,
};

use support::submit;

const VOCABULARY: usize = 8;
const CONTEXT: usize = 40;
/// Room for several pages of a cache.
const LONG_CONTEXT: usize = 1000;

/// After token t comes (t + 1) mod 8; after token 6 comes a NaN. Token 5 makes a pass slow, 5 after 7 makes it
/// panic.
struct Counting {
    stream: Stream,
    flat: bool,
}

impl CausalLm for Counting {
    fn vocabulary(&self) -> usize {
        VOCABULARY
    }
    fn max_context(&self) -> usize {
        LONG_CONTEXT
    }
    fn new_cache(&self) -> SequenceCache {
        SequenceCache::new(Vec::new())
    }
    fn decisions(&self, _: &[u32]) -> Result<Vec<LayerDecisions>, ModelError> {
        Ok(Vec::new())
    }
    fn build(&self, batch: &mut [BatchSegment<'_>]) -> Result<Forward, ModelError> {
        let mut rows = Vec::new();
        for segment in batch {
            segment.cache.advance(segment.tokens.len());
            if segment.tokens.contains(&5) {
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(!segment.tokens.windows(2).any(|pair| pair == [7, 5]), "seven");
            let wanted = match segment.logits {
                LogitRows::None => 0,
                LogitRows::Last => 1,
                LogitRows::All => segment.tokens.len(),
            };
            for &token in &segment.tokens[segment.tokens.len() - wanted..] {
                let mut row = [0.0f32; VOCABULARY];
                row[(token as usize + 1) % VOCABULARY] = if self.flat { 0.0 } else { 9.0 };
                if token == 6 {
                    row[7] = f32::NAN;
                }
                rows.extend(row);
            }
        }
        let count = rows.len() / VOCABULARY;
        let logits = Array::from_slice(&self.stream, &rows, &[count, VOCABULARY])?;
        Ok(Forward { logits: (count > 0).then_some(logits), streams: None })
    }
}

/// An engine that runs one request at a time.
fn engine(flat: bool, waiting: usize) -> LocalEngine {
    engine_of(flat, RequestLimits { parallel: 1, waiting, caches: None })
}

fn engine_of(flat: bool, requests: RequestLimits) -> LocalEngine {
    engine_with(flat, CONTEXT, requests)
}

fn engine_with(flat: bool, context: usize, requests: RequestLimits) -> LocalEngine {
    let stream = Stream::new(&Device::reference());
    let loaded = LoadedModel {
        model: Box::new(Counting { stream: stream.clone(), flat }),
        stream,
        model_type: "counting".to_owned(),
        sampler: SamplerRule::Mtplx,
        parameters: 0,
        weight_bytes: 0,
        bytes_per_token: 0,
        skipped: Vec::new(),
    };
    let options = EngineOptions {
        model_id: "counting".to_owned(),
        context: Some(context),
        requests,
        sessions: SessionOptions::default(),
    };
    LocalEngine::start(loaded, options)
}

fn request(prompt: &[u32], max_tokens: usize) -> GenerateRequest {
    GenerateRequest {
        prompt: prompt.to_vec(),
        sampling: SamplingParams::default(),
        max_tokens,
        stop_tokens: vec![4],
        logprobs: None,
        speculation: Speculation::default(),
        session: SessionUse::default(),
        shared_prefix: 0,
    }
}

/// An answer of 18 tokens that takes its time, and has begun.
fn slow_answer(engine: &LocalEngine) -> (CancelToken, Receiver<Event>) {
    let mut slow = request(&[5; 20], 18);
    slow.sampling.logit_bias = vec![(5, 100.0)];
    let (stop, running) = submit(engine, slow);
    while !matches!(running.recv().unwrap(), Event::Tokens(_)) {}
    (stop, running)
}

fn tokens(events: &[Event]) -> Vec<u32> {
    events.iter().flat_map(Event::token_ids).collect()
}

fn ending(events: &[Event]) -> FinishReason {
    match events.last() {
        Some(Event::Finished { reason, .. }) => *reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_runs_from_queued_to_finished() {
    let engine = engine(false, 4);
    let (_, events) = submit(&engine, request(&[7, 0, 1], 10));
    let events: Vec<Event> = events.iter().collect();
    assert_eq!(events[0], Event::Queued { ahead: 0 });
    assert!(matches!(events[1], Event::Started { cached_tokens: 0, prompt_tokens: 3, .. }));
    assert_eq!(events[2], Event::Prefill { done: 3, total: 3 });
    assert_eq!(tokens(&events), [2, 3, 4], "the stop token is reported");
    let Some(Event::Finished { reason: FinishReason::Stop, usage }) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (3, 3));
    drop(engine);
}

#[test]
fn max_tokens_and_the_context_end_an_answer() {
    let engine = engine(false, 4);
    let (_, events) = submit(&engine, request(&[7], 2));
    let events: Vec<Event> = events.iter().collect();
    assert_eq!((tokens(&events), ending(&events)), (vec![0, 1], FinishReason::Length));
    // 38 of 40 tokens are taken by the prompt: two are left.
    let (_, events) = submit(&engine, request(&[7; 38], 100));
    let events: Vec<Event> = events.iter().collect();
    assert_eq!((tokens(&events), ending(&events)), (vec![0, 1], FinishReason::Length));
}

#[test]
fn what_cannot_run_is_refused_at_once() {
    let engine = engine(false, 4);
    let refuse = |request| engine.submit(request, Box::new(|_| Flow::Continue)).unwrap_err();
    assert_eq!(refuse(request(&[], 1)), EngineError::EmptyPrompt);
    let out = EngineError::TokenOutOfRange { token: 8, vocabulary: VOCABULARY };
    assert_eq!(refuse(request(&[8], 1)), out);
    let mut biased = request(&[1], 1);
    biased.sampling.logit_bias = vec![(8, 1.0)];
    assert_eq!(refuse(biased), out);
    let long = refuse(request(&[1; CONTEXT], 1));
    assert_eq!(long, EngineError::ContextLengthExceeded { prompt_tokens: CONTEXT, context: CONTEXT });
    assert!(long.to_string().contains("maximum context length is 40 tokens"), "{long}");
    assert_eq!(engine.status().completed, 0);
}

#[test]
fn a_nan_ends_the_answer_and_not_the_engine() {
    let engine = engine(false, 4);
    let mut bad = request(&[5], 10);
    bad.stop_tokens.clear();
    let (_, events) = submit(&engine, bad);
    let events: Vec<Event> = events.iter().collect();
    assert_eq!(tokens(&events), [6]);
    let Some(Event::Failed(EngineError::NonFiniteLogits { position: 2, token: 7, value })) = events.last()
    else {
        panic!("{events:?}")
    };
    assert!(value.is_nan());
    let (_, events) = submit(&engine, request(&[2], 10));
    assert_eq!(tokens(&events.iter().collect::<Vec<_>>()), [3, 4]);
    assert_eq!((engine.status().completed, engine.status().failed), (2, 1));
}

#[test]
fn a_panic_ends_the_answer_and_not_the_engine() {
    let engine = engine(false, 4);
    for prompt in [&[7, 5][..], &[1, 7, 5, 2]] {
        let (_, events) = submit(&engine, request(prompt, 9));
        let expected = EngineError::Panicked { message: "seven".to_owned() };
        assert_eq!(events.iter().last(), Some(Event::Failed(expected)));
    }
    let (_, events) = submit(&engine, request(&[1], 9));
    assert_eq!(tokens(&events.iter().collect::<Vec<_>>()), [2, 3, 4]);
    let status = engine.status();
    assert_eq!((status.failed, status.running, status.stopped), (2, 0, None));
}

#[test]
fn a_listener_that_panics_is_gone_and_nobody_else_minds() {
    let engine = engine_of(false, RequestLimits { parallel: 2, waiting: 4, caches: None });
    let mut slow = request(&[5], 8);
    slow.sampling.logit_bias = vec![(5, 100.0)];
    let (_, running) = submit(&engine, slow);
    let sink = |_| panic!("no room");
    engine.submit(request(&[1], 9), Box::new(sink)).unwrap();
    let events: Vec<Event> = running.iter().collect();
    assert_eq!((tokens(&events), ending(&events)), (vec![5; 8], FinishReason::Length));
    assert_eq!((engine.status().completed, engine.status().cancelled), (2, 1));
}

/// What panics as it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("no room");
    }
}

/// A panic that belongs to no request's work, here as a listener is dropped, cannot be laid to one.
#[test]
fn after_the_thread_has_ended_the_status_says_why_and_requests_are_refused() {
    let engine = engine(false, 4);
    let bomb = Bomb;
    let sink = move |_| {
        let _ = &bomb;
        Flow::Continue
    };
    engine.submit(request(&[1], 9), Box::new(sink)).unwrap();
    let start = Instant::now();
    while engine.status().stopped.is_none() {
        assert!(start.elapsed() < Duration::from_secs(20), "the status says nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    let reason = engine.status().stopped.unwrap();
    assert_eq!(reason, "the engine panicked: no room; this is a defect of the program");
    let refused = engine.submit(request(&[1], 9), Box::new(|_| Flow::Continue)).unwrap_err();
    assert_eq!(refused, EngineError::Stopped);
}

#[test]
fn requests_wait_their_turn_and_are_told_how_many_are_ahead() {
    let engine = engine(false, 2);
    let mut slow = request(&[5; 20], 18);
    slow.sampling.logit_bias = vec![(5, 100.0)];
    let (stop, running) = submit(&engine, slow);
    assert!(matches!(running.recv(), Ok(Event::Queued { ahead: 0 })));
    assert!(matches!(running.recv(), Ok(Event::Started { .. })));
    let (_, first) = submit(&engine, request(&[2], 5));
    let (gone, second) = submit(&engine, request(&[2], 5));
    assert_eq!(
        engine.submit(request(&[2], 5), Box::new(|_| Flow::Continue)).unwrap_err(),
        EngineError::QueueFull { waiting: 2 }
    );
    assert_eq!(first.recv(), Ok(Event::Queued { ahead: 1 }));
    assert_eq!(second.recv(), Ok(Event::Queued { ahead: 2 }));
    assert_eq!((engine.status().running, engine.status().waiting), (1, 2));
    gone.cancel();
    let second: Vec<Event> = second.iter().collect();
    assert_eq!(ending(&second), FinishReason::Cancelled, "a waiting request leaves without its turn");
    stop.cancel();
    assert_eq!(ending(&running.iter().collect::<Vec<_>>()), FinishReason::Cancelled);
    assert_eq!(tokens(&first.iter().collect::<Vec<_>>()), [3, 4]);
    assert_eq!((engine.status().completed, engine.status().cancelled), (3, 2));
}

#[test]
fn requests_that_run_side_by_side_do_not_disturb_each_other() {
    let engine = engine_of(false, RequestLimits { parallel: 3, waiting: 4, caches: None });
    let (stop, running) = slow_answer(&engine);
    assert_eq!(engine.status().running, 1);
    // One ends as it should, one with an error of its own.
    let mut bad = request(&[5], 10);
    bad.stop_tokens.clear();
    let (_, bad) = submit(&engine, bad);
    let (_, good) = submit(&engine, request(&[2], 10));
    let good: Vec<Event> = good.iter().collect();
    assert_eq!(good[0], Event::Queued { ahead: 0 });
    assert_eq!(tokens(&good), [3, 4]);
    let failed = bad.iter().last();
    assert!(matches!(failed, Some(Event::Failed(EngineError::NonFiniteLogits { .. }))), "{failed:?}");
    assert_eq!((engine.status().running, engine.status().failed), (1, 1));
    stop.cancel();
    assert_eq!(ending(&running.iter().collect::<Vec<_>>()), FinishReason::Cancelled);
    assert_eq!((engine.status().running, engine.status().cache_bytes), (0, 0));
}

#[test]
fn a_request_whose_caches_have_no_room_waits_unless_it_is_alone() {
    let size = CacheSize { fixed: 100, per_1024: 1024 };
    let caches = Some(CacheLimit { size, bytes: 1000 });
    let limits = RequestLimits { parallel: 3, waiting: 4, caches };
    let engine = engine_with(false, LONG_CONTEXT, limits);
    // 100 bytes and one a token, in pages of 256: 356 and 868 do not fit together, another 356 would beside the first.
    let (stop, _running) = slow_answer(&engine);
    let (_, large) = submit(&engine, request(&[2; 600], 1));
    let (_, small) = submit(&engine, request(&[2; 9], 1));
    std::thread::sleep(Duration::from_millis(60));
    let status = engine.status();
    assert_eq!((status.running, status.waiting), (1, 2), "the small one does not overtake");
    stop.cancel();
    assert_eq!(tokens(&large.iter().collect::<Vec<_>>()), [3]);
    assert_eq!(tokens(&small.iter().collect::<Vec<_>>()), [3]);
}

/// Where the pass itself fails, nobody's state can be trusted.
#[test]
fn a_panic_in_a_pass_ends_all_that_took_part_and_not_the_engine() {
    let engine = engine_of(false, RequestLimits { parallel: 2, waiting: 4, caches: None });
    let (_, running) = slow_answer(&engine);
    let (_, seven) = submit(&engine, request(&[7, 5], 9));
    for events in [running, seven] {
        let expected = EngineError::Panicked { message: "seven".to_owned() };
        assert_eq!(events.iter().last(), Some(Event::Failed(expected)));
    }
    let (_, events) = submit(&engine, request(&[1], 9));
    assert_eq!(tokens(&events.iter().collect::<Vec<_>>()), [2, 3, 4]);
}

#[test]
fn a_listener_that_goes_away_stops_the_answer_within_a_step() {
    let engine = engine(false, 4);
    let mut endless = request(&[5], 30);
    endless.sampling.logit_bias = vec![(5, 100.0)];
    let (_, events) = submit(&engine, endless);
    while !matches!(events.recv().unwrap(), Event::Tokens(_)) {}
    drop(events);
    let (_, next) = submit(&engine, request(&[2], 5));
    assert_eq!(tokens(&next.iter().collect::<Vec<_>>()), [3, 4]);
    assert_eq!(engine.status().cancelled, 1);
    assert!(engine.status().decode_tokens < 10, "{:?}", engine.status());
}

#[test]
fn a_seed_reproduces_and_is_reported_when_it_was_drawn() {
    let engine = engine(true, 4);
    let sample = |seed| {
        let mut request = request(&[2], 20);
        request.stop_tokens.clear();
        request.sampling = SamplingParams {
            temperature: 1.0,
            seed,
            logit_bias: vec![(6, -100.0)],
            ..SamplingParams::default()
        };
        let (_, events) = submit(&engine, request);
        let events: Vec<Event> = events.iter().collect();
        let Event::Started { seed, .. } = events[1] else { panic!("{events:?}") };
        (seed, tokens(&events))
    };
    assert_eq!(sample(Some(0)), sample(Some(0)));
    assert_ne!(sample(Some(0)).1, sample(Some(1)).1);
    let (drawn, first) = sample(None);
    assert_eq!(sample(Some(drawn)).1, first);
    assert_ne!(sample(None).1, first);
}

#[test]
fn log_probabilities_come_with_the_tokens() {
    let engine = engine(false, 4);
    let (_, events) = submit(&engine, GenerateRequest { logprobs: Some(2), ..request(&[1], 1) });
    let events: Vec<Event> = events.iter().collect();
    let Some(Event::Tokens(tokens)) = events.iter().find(|event| matches!(event, Event::Tokens(_))) else {
        panic!("{events:?}")
    };
    let [Token { id: 2, logprobs: Some(logprobs) }] = &tokens[..] else { panic!("{tokens:?}") };
    assert_eq!((logprobs.chosen.id, logprobs.top[0], logprobs.top[1].id), (2, logprobs.chosen, 0));
    let expected = 9.0 - (9f64.exp() + 7.0).ln();
    assert_eq!(logprobs.chosen.logprob, expected as f32);
}
