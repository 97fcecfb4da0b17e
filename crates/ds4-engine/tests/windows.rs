//! Windows of drafts over a scripted model: rejection, stop, limit and cancellation at each of their positions.
//!
//! The target's next token depends on the position alone, so a state with a row too many or too few changes the answer. The
//! head checks that its history pairs each token's streams with the token after it.
#![allow(clippy::unwrap_used, reason = "tests only")]

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use ds4_array::{Array, Device, Stream};
use ds4_engine::{EngineOptions, LocalEngine, RequestLimits, SessionOptions};
use ds4_engine_api::{
    CancelToken, Engine, Event, FinishReason, Flow, GenerateRequest, SamplingParams, SessionUse, Speculation,
    SpeculationMode, Usage,
};
use ds4_models::{
    BatchSegment, CausalLm, DraftHead, Forward, LayerDecisions, LoadedModel, LogitRows, ModelError,
    SequenceCache,
};

const VOCABULARY: usize = 97;
const PROMPT: usize = 5;
const ANSWER: usize = 40;
const DEPTH: usize = Speculation::MAX_DEPTH;

/// The token at a position; no two within an answer are equal.
fn script(position: usize) -> u32 {
    (position * 31 % VOCABULARY) as u32
}

/// The answer of plain decoding.
fn expected() -> Vec<u32> {
    (PROMPT..PROMPT + ANSWER).map(script).collect()
}

/// What the engine asks of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Prefill,
    Draft,
    Check,
}

/// Cancels a request when the nth call of a kind comes.
type Trap = Arc<Mutex<Option<(Call, usize, CancelToken)>>>;

struct Scripted {
    stream: Stream,
    /// How many drafts of a chain are right.
    right: usize,
    trap: Trap,
}

impl Scripted {
    fn note(&self, call: Call) {
        if let Some((wanted, left, cancel)) = &mut *self.trap.lock().unwrap()
            && *wanted == call
        {
            if *left == 0 {
                cancel.cancel();
            }
            *left = left.saturating_sub(1);
        }
    }

    fn rows(&self, tokens: impl Iterator<Item = u32>) -> Result<Array, ModelError> {
        let mut rows = Vec::new();
        for token in tokens {
            rows.extend((0..VOCABULARY as u32).map(|id| if id == token { 9.0f32 } else { 0.0 }));
        }
        let count = rows.len() / VOCABULARY;
        Ok(Array::from_slice(&self.stream, &rows, &[count, VOCABULARY])?)
    }
}

impl CausalLm for Scripted {
    fn vocabulary(&self) -> usize {
        VOCABULARY
    }
    fn max_context(&self) -> usize {
        VOCABULARY
    }
    fn new_cache(&self) -> SequenceCache {
        SequenceCache::new(Vec::new())
    }
    fn decisions(&self, _: &[u32]) -> Result<Vec<LayerDecisions>, ModelError> {
        Ok(Vec::new())
    }

    /// The streams of a row are its position and 0: how many drafts came after it.
    fn build(&self, batch: &mut [BatchSegment<'_>]) -> Result<Forward, ModelError> {
        let BatchSegment { tokens, cache, logits } = &mut batch[0];
        self.note(if *logits == LogitRows::All { Call::Check } else { Call::Prefill });
        let (first, end) = (cache.tokens(), cache.tokens() + tokens.len());
        cache.advance(tokens.len());
        let streams: Vec<f32> = (first..end).flat_map(|position| [position as f32, 0.0]).collect();
        let wanted = match logits {
            LogitRows::None => end..end,
            LogitRows::Last => end - 1..end,
            LogitRows::All => first..end,
        };
        let rows = if wanted.is_empty() { None } else { Some(self.rows(wanted.map(|at| script(at + 1)))?) };
        Ok(Forward {
            logits: rows,
            streams: Some(Array::from_slice(&self.stream, &streams, &[tokens.len(), 2])?),
        })
    }

    fn draft_head(&self) -> Option<Box<dyn DraftHead + '_>> {
        Some(Box::new(Head(self)))
    }
}

struct Head<'a>(&'a Scripted);

impl DraftHead for Head<'_> {
    fn new_cache(&self) -> SequenceCache {
        SequenceCache::new(Vec::new())
    }

    fn build(
        &self,
        streams: &Array,
        next_tokens: &[u32],
        cache: &mut SequenceCache,
    ) -> Result<Array, ModelError> {
        let mut out = Vec::new();
        for (row, &next) in streams.to_vec::<f32>()?.chunks(2).zip(next_tokens) {
            let (position, drafts) = (row[0] as usize, row[1]);
            assert_eq!(position, cache.tokens() + out.len() / 2, "rows of the history are in order");
            if drafts == 0.0 {
                assert_eq!(next, script(position + 1), "the token after position {position}");
            }
            out.extend([row[0] + 1.0, drafts + 1.0]);
        }
        cache.advance(next_tokens.len());
        Ok(Array::from_slice(&self.0.stream, &out, &[next_tokens.len(), 2])?)
    }

    fn logits(&self, streams: &Array) -> Result<Array, ModelError> {
        self.0.note(Call::Draft);
        let row = streams.to_vec::<f32>()?;
        let is_right = row[1] as usize <= self.0.right;
        let token = script(row[0] as usize + 1);
        self.0.rows(std::iter::once(if is_right { token } else { (token + 1) % VOCABULARY as u32 }))
    }
}

fn engine(right: usize) -> (LocalEngine, Trap) {
    let (stream, trap) = (Stream::new(&Device::reference()), Trap::default());
    let loaded = LoadedModel {
        model: Box::new(Scripted { stream: stream.clone(), right, trap: trap.clone() }),
        stream,
        model_type: "scripted".to_owned(),
        parameters: 0,
        weight_bytes: 0,
        bytes_per_token: 0,
        skipped: Vec::new(),
        sampler: ds4_models::SamplerRule::Mtplx,
    };
    let options = EngineOptions {
        model_id: "scripted".to_owned(),
        context: None,
        requests: RequestLimits { parallel: 4, waiting: 4, caches: None },
        sessions: SessionOptions::default(),
    };
    (LocalEngine::start(loaded, options), trap)
}

fn request() -> GenerateRequest {
    GenerateRequest {
        prompt: (0..PROMPT).map(script).collect(),
        sampling: SamplingParams::default(),
        max_tokens: ANSWER,
        stop_tokens: Vec::new(),
        logprobs: None,
        speculation: Speculation { mode: SpeculationMode::Mtp, depth: DEPTH },
        session: SessionUse::default(),
        shared_prefix: 0,
    }
}

/// Tokens and ending of an answer; `cancel` is called with each event's number of tokens before it.
fn answer(
    engine: &LocalEngine,
    request: GenerateRequest,
    flow: impl Fn(usize) -> Flow + Send + 'static,
    submitted: impl FnOnce(CancelToken),
) -> (Vec<u32>, FinishReason, Usage) {
    let (sender, events) = channel();
    let mut count = 0;
    let sink = move |event: Event| {
        count += event.token_ids().count();
        sender.send(event).unwrap();
        flow(count)
    };
    submitted(engine.submit(request, Box::new(sink)).unwrap());
    let mut tokens = Vec::new();
    for event in events {
        match event {
            Event::Tokens(_) => tokens.extend(event.token_ids()),
            Event::Finished { reason, usage } => return (tokens, reason, usage),
            Event::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    panic!("the engine went away")
}

fn complete(engine: &LocalEngine, request: GenerateRequest) -> (Vec<u32>, FinishReason, Usage) {
    answer(engine, request, |_| Flow::Continue, drop)
}

#[test]
fn a_window_may_be_rejected_at_each_position_or_accepted() {
    for right in 0..=DEPTH {
        let (engine, _) = engine(right);
        let (tokens, reason, usage) = complete(&engine, request());
        assert_eq!((tokens, reason), (expected(), FinishReason::Length), "{right} drafts are right");
        let did = usage.speculation;
        for (position, &accepted) in did.accepted_by_position.iter().enumerate() {
            assert_eq!(accepted > 0, position < right, "{right} are right: {did:?}");
        }
        assert_eq!(did.bonus > 0, right == DEPTH, "{did:?}");
    }
}

#[test]
fn a_stop_token_may_come_at_each_position() {
    for right in 0..=DEPTH {
        let (engine, _) = engine(right);
        for length in 1..=ANSWER {
            let stop_tokens = vec![expected()[length - 1]];
            let (tokens, reason, _) = complete(&engine, GenerateRequest { stop_tokens, ..request() });
            assert_eq!((&tokens[..], reason), (&expected()[..length], FinishReason::Stop));
        }
    }
}

#[test]
fn the_limit_may_come_at_each_position() {
    for right in 0..=DEPTH {
        let (engine, _) = engine(right);
        for max_tokens in 1..=ANSWER {
            let (tokens, reason, usage) = complete(&engine, GenerateRequest { max_tokens, ..request() });
            assert_eq!((&tokens[..], reason), (&expected()[..max_tokens], FinishReason::Length));
            assert!(usage.speculation.drafted <= (max_tokens * DEPTH) as u64);
        }
    }
}

#[test]
fn the_end_of_the_context_is_a_limit_too() {
    let (engine, _) = engine(DEPTH);
    let (tokens, reason, _) = complete(&engine, GenerateRequest { max_tokens: 10 * VOCABULARY, ..request() });
    let expected: Vec<u32> = (PROMPT..VOCABULARY).map(script).collect();
    assert_eq!((tokens, reason), (expected, FinishReason::Length));
}

#[test]
fn a_request_may_be_cancelled_at_each_stage() {
    let (engine, trap) = engine(2);
    for call in [Call::Prefill, Call::Draft, Call::Check] {
        for time in 0..if call == Call::Prefill { 1 } else { 8 } {
            let mut set = trap.lock().unwrap();
            let (tokens, reason, _) = answer(
                &engine,
                request(),
                |_| Flow::Continue,
                |cancel| {
                    *set = Some((call, time, cancel));
                    drop(set);
                },
            );
            *trap.lock().unwrap() = None;
            assert_eq!(reason, FinishReason::Cancelled, "{call:?} {time}");
            assert_eq!(tokens, expected()[..tokens.len()], "{call:?} {time}");
            assert!(tokens.len() < ANSWER);
            assert_eq!(complete(&engine, request()).0, expected(), "the answer after {call:?} {time}");
        }
    }
    for after in 1..10 {
        let flow = move |tokens| if tokens >= after { Flow::Stop } else { Flow::Continue };
        let (tokens, reason, _) = answer(&engine, request(), flow, drop);
        assert_eq!((reason, &tokens[..]), (FinishReason::Cancelled, &expected()[..tokens.len()]));
        assert_eq!(complete(&engine, request()).0, expected(), "the answer after {after} tokens");
    }
}
