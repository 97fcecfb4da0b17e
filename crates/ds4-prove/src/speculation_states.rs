//! Whatever happens in a window (rejection, stop, limit, cancellation, a snapshot afterwards), answer and state are those of
//! plain decoding. Shown on the demo model, with its real caches.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use ds4_array::Array;
use ds4_engine::{LocalEngine, Stepper};
use ds4_engine_api::{
    CancelToken, Engine, Event, FinishReason, Flow, GenerateRequest, Speculation, SpeculationMode,
};
use ds4_models::{
    BatchSegment, CausalLm, DraftHead, Forward, LayerDecisions, LogitRows, ModelError, SequenceCache,
};
use ds4_testkit::receipts::generations::{Recording, answer};

use crate::report::Report;
use crate::speculation::{demo, engine, pseudo_random};

/// Tokens that follow a restored snapshot.
const FOLLOWING: usize = 64;

/// Tokens of the answer in which snapshots are taken.
const ANSWER: usize = 120;

const DEPTH: usize = Speculation::MAX_DEPTH;

/// Counts that were met.
type Seen = BTreeSet<usize>;

pub(crate) fn run(report: &mut Report, short: bool) -> anyhow::Result<()> {
    let recording = Recording::load();
    let stepper = Stepper::new(demo()?);
    let prompts: Vec<&str> = recording.prompts().collect();
    let mut accepted = Seen::new();
    let chosen = prompts.iter().rev().take(if short { 1 } else { prompts.len() });
    let mut requests: Vec<(&str, GenerateRequest)> = chosen
        .flat_map(|&prompt| [SpeculationMode::Mtp, SpeculationMode::Both].map(|mode| (prompt, mode)))
        .map(|(prompt, mode)| (prompt, endless(&recording, prompt, mode)))
        .collect();
    // The head is seldom wrong about the tasks that the demo model was trained on.
    let strange = endless(&recording, "prime", SpeculationMode::Mtp);
    requests.push(("random tokens", GenerateRequest { prompt: pseudo_random(60), ..strange }));
    for (prompt, request) in requests {
        let mode = request.speculation.mode;
        report.check(&format!("snapshots between cycles, {prompt}, {mode:?}"), || {
            let (cycles, kept) = snapshots(&stepper, &request);
            // Copied blocks are longer than windows of drafts: their counts are not those of drafts.
            if mode == SpeculationMode::Mtp {
                accepted.extend(kept);
            }
            format!("{cycles} states restored, the {FOLLOWING} tokens after each equal plain decoding's")
        });
    }
    report.check("rejection at each position, and all accepted", || {
        let missing: Vec<usize> = (0..=DEPTH).filter(|count| !accepted.contains(count)).collect();
        assert!(missing.is_empty(), "no cycle accepted {missing:?} drafts");
        format!("cycles with 0 to {DEPTH} of {DEPTH} drafts accepted were among them")
    });
    let request = endless(&recording, "prime", SpeculationMode::Mtp);
    report.check("a stop token at each position of a window", || stops(&stepper, &request));
    report.check("a length limit at each position of a window", || limits(&stepper, &request));
    cancellations(report, &request)
}

/// A greedy answer that only its length ends.
fn endless(recording: &Recording, prompt: &str, mode: SpeculationMode) -> GenerateRequest {
    GenerateRequest {
        stop_tokens: Vec::new(),
        speculation: Speculation { mode, depth: DEPTH },
        ..recording.greedy(prompt, ANSWER)
    }
}

/// The answer of plain decoding, of `tokens` tokens.
fn plain(stepper: &Stepper, request: &GenerateRequest, tokens: usize) -> Vec<u32> {
    let speculation = Speculation { mode: SpeculationMode::Off, depth: 1 };
    complete(stepper, &GenerateRequest { speculation, max_tokens: tokens, ..request.clone() }).0
}

/// A complete answer, why it ended, and how many tokens its last cycle brought.
fn complete(stepper: &Stepper, request: &GenerateRequest) -> (Vec<u32>, FinishReason, usize) {
    let mut answer = stepper.start(request).expect("the prompt can be read");
    loop {
        let before = answer.tokens().len();
        if let Some(reason) = answer.cycle().expect("a cycle runs") {
            return (answer.tokens().to_vec(), reason, answer.tokens().len() - before);
        }
    }
}

/// Takes the state after each cycle, restores it elsewhere, and decodes plainly from there. Returns the number of cycles,
/// and how many drafts they accepted.
fn snapshots(stepper: &Stepper, request: &GenerateRequest) -> (usize, Seen) {
    let text = [&request.prompt[..], &plain(stepper, request, ANSWER + FOLLOWING + DEPTH)].concat();
    let mut answer = stepper.start(request).expect("the prompt can be read");
    let (mut cycles, mut accepted) = (0, Seen::new());
    loop {
        let before = answer.cache().tokens();
        let finished = answer.cycle().expect("a cycle runs");
        let tokens = answer.cache().tokens();
        accepted.extend((tokens - before).checked_sub(1));
        let known = [&request.prompt[..], answer.tokens()].concat();
        assert_eq!(known, text[..known.len()], "the answer after cycle {cycles}");

        let parts = answer.cache().state();
        let mut restored = stepper.model().new_cache();
        let part = |wanted: &str| parts.iter().find(|(name, _)| name == wanted);
        restored
            .restore(tokens, &mut |wanted| part(wanted).map(|(_, array)| array.clone()))
            .expect("the state can be restored");
        let next = follow(stepper.model(), &mut restored, text[tokens]);
        assert_eq!(next, text[tokens + 1..][..FOLLOWING], "after cycle {cycles}, {tokens} tokens");
        cycles += 1;
        if finished.is_some() {
            return (cycles, accepted);
        }
    }
}

/// The most probable tokens after `token`.
fn follow(model: &dyn CausalLm, cache: &mut SequenceCache, mut token: u32) -> Vec<u32> {
    let mut next = || {
        let pass = model.forward(&mut [BatchSegment { tokens: &[token], cache, logits: LogitRows::Last }]);
        let row = pass.ok().and_then(|pass| pass.logits).and_then(|logits| logits.to_vec::<f32>().ok());
        let row = row.expect("a pass gives logits");
        let best = (0..).zip(&row).max_by(|a, b| a.1.total_cmp(b.1).then(u32::cmp(&b.0, &a.0)));
        token = best.map_or(0, |(id, _)| id);
        token
    };
    std::iter::repeat_with(&mut next).take(FOLLOWING).collect()
}

/// Every token of the plain answer as the stop token.
fn stops(stepper: &Stepper, request: &GenerateRequest) -> String {
    let expected = plain(stepper, request, ANSWER);
    let (mut positions, mut answers) = (Seen::new(), 0);
    for (first, &token) in expected.iter().enumerate() {
        if expected[..first].contains(&token) {
            continue;
        }
        let stopping = GenerateRequest { stop_tokens: vec![token], ..request.clone() };
        let (tokens, reason, position) = complete(stepper, &stopping);
        assert_eq!((&tokens[..], reason), (&expected[..=first], FinishReason::Stop), "stop at {first}");
        positions.insert(position);
        answers += 1;
    }
    every_position(&positions);
    format!("{answers} stop tokens, at positions {positions:?} of a cycle's tokens")
}

/// Every length up to a limit.
fn limits(stepper: &Stepper, request: &GenerateRequest) -> String {
    let expected = plain(stepper, request, ANSWER);
    let mut positions = Seen::new();
    for max_tokens in 1..=ANSWER {
        let (tokens, reason, position) =
            complete(stepper, &GenerateRequest { max_tokens, ..request.clone() });
        assert_eq!((&tokens[..], reason), (&expected[..max_tokens], FinishReason::Length));
        positions.insert(position);
    }
    every_position(&positions);
    format!("{ANSWER} limits, at positions {positions:?} of a cycle's tokens")
}

/// A cycle brings at most its drafts and one token more.
fn every_position(positions: &Seen) {
    let missing: Vec<usize> = (1..=DEPTH).filter(|position| !positions.contains(position)).collect();
    assert!(missing.is_empty(), "none at {missing:?}");
}

/// Where a request is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Prefill,
    Drafting,
    BeforeCheck,
    After,
}

/// Cancels at the nth time that a stage is reached, from within the model.
#[derive(Clone)]
struct Trap(Arc<Mutex<Option<(Stage, usize, CancelToken)>>>);

impl Trap {
    fn reached(&self, stage: Stage) {
        let mut set = self.0.lock().expect("nobody panics while holding it");
        if let Some((wanted, times, cancel)) = &mut *set
            && *wanted == stage
        {
            match times.checked_sub(1) {
                Some(left) => *times = left,
                None => cancel.cancel(),
            }
        }
    }
}

/// A model that notes what it is asked for.
struct Watched {
    model: Box<dyn CausalLm>,
    trap: Trap,
}

impl CausalLm for Watched {
    fn vocabulary(&self) -> usize {
        self.model.vocabulary()
    }
    fn max_context(&self) -> usize {
        self.model.max_context()
    }
    fn new_cache(&self) -> SequenceCache {
        self.model.new_cache()
    }
    fn decisions(&self, tokens: &[u32]) -> Result<Vec<LayerDecisions>, ModelError> {
        self.model.decisions(tokens)
    }
    fn build(&self, batch: &mut [BatchSegment<'_>]) -> Result<Forward, ModelError> {
        let checks = batch[0].logits == LogitRows::All;
        self.trap.reached(if checks { Stage::BeforeCheck } else { Stage::Prefill });
        self.model.build(batch)
    }
    fn draft_head(&self) -> Option<Box<dyn DraftHead + '_>> {
        let head = self.model.draft_head()?;
        Some(Box::new(WatchedHead { head, trap: &self.trap }))
    }
}

struct WatchedHead<'a> {
    head: Box<dyn DraftHead + 'a>,
    trap: &'a Trap,
}

impl DraftHead for WatchedHead<'_> {
    fn new_cache(&self) -> SequenceCache {
        self.head.new_cache()
    }
    fn build(
        &self,
        streams: &Array,
        next_tokens: &[u32],
        cache: &mut SequenceCache,
    ) -> Result<Array, ModelError> {
        self.head.build(streams, next_tokens, cache)
    }
    fn logits(&self, streams: &Array) -> Result<Array, ModelError> {
        self.trap.reached(Stage::Drafting);
        self.head.logits(streams)
    }
}

fn cancellations(report: &mut Report, request: &GenerateRequest) -> anyhow::Result<()> {
    let mut loaded = demo()?;
    let trap = Trap(Arc::default());
    loaded.model = Box::new(Watched { model: loaded.model, trap: trap.clone() });
    let engine = engine(loaded);
    let expected = answer(&engine, request.clone()).tokens;
    for stage in [Stage::Prefill, Stage::Drafting, Stage::BeforeCheck, Stage::After] {
        let times = if stage == Stage::Prefill { 1 } else { 6 };
        report.check(&format!("cancelled: {stage:?}"), || {
            let mut lengths = Vec::new();
            for time in 0..times {
                let tokens = cancelled(&engine, &trap, request, (stage, time)).expect("the engine answers");
                assert_eq!(tokens, expected[..tokens.len()], "the tokens before the end");
                assert!(tokens.len() < expected.len(), "it ended early");
                lengths.push(tokens.len());
                assert_eq!(answer(&engine, request.clone()).tokens, expected, "the next answer");
            }
            format!("{times} times, after {lengths:?} tokens; the next answer is whole")
        });
    }
    Ok(())
}

/// Tokens that came before a request ended as cancelled.
fn cancelled(
    engine: &LocalEngine,
    trap: &Trap,
    request: &GenerateRequest,
    (stage, time): (Stage, usize),
) -> anyhow::Result<Vec<u32>> {
    let (sender, events) = channel();
    let (after, mut left) = (stage == Stage::After, time);
    let sink = move |event: Event| {
        let tokens = event.token_ids().count();
        let stop = after && tokens > left;
        left = left.saturating_sub(tokens);
        if sender.send(event).is_err() || stop { Flow::Stop } else { Flow::Continue }
    };
    // The engine's thread cannot pass the trap before the token is in it.
    let mut set = trap.0.lock().expect("nobody panics while holding it");
    let cancel = engine.submit(request.clone(), Box::new(sink))?;
    *set = Some((stage, time, cancel));
    drop(set);
    let events: Vec<Event> = events.iter().collect();
    *trap.0.lock().expect("nobody panics while holding it") = None;
    let end = events.last().context("no events")?;
    anyhow::ensure!(matches!(end, Event::Finished { reason: FinishReason::Cancelled, .. }), "{end:?}");
    Ok(events.iter().flat_map(Event::token_ids).collect())
}
