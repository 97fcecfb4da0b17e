//! `generate.jsonl`: whole generations of MTPLX with the demo checkpoint, asked of an engine again.

use std::sync::mpsc::channel;

use ds4_engine_api::{
    Engine, Event, FinishReason, GenerateRequest, SamplingParams, SessionUse, Speculation, SpeculationMode,
    Usage,
};
use serde_json::Value;

use super::files::{Fields, records};

/// The recording: prompts by name, and runs.
pub struct Recording {
    lines: Vec<Value>,
}

/// An answer with its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub reason: FinishReason,
    /// Counts and times.
    pub usage: Usage,
}

/// Asks an engine and waits for the end.
pub fn answer(engine: &dyn Engine, request: GenerateRequest) -> Answer {
    let (sender, events) = channel();
    engine.submit(request, Box::new(sender)).unwrap();
    let mut tokens = Vec::new();
    for event in events {
        match event {
            Event::Tokens(_) => tokens.extend(event.token_ids()),
            Event::Finished { reason, usage } => return Answer { tokens, reason, usage },
            Event::Failed(error) => panic!("{error}"),
            Event::Queued { .. } | Event::Started { .. } | Event::Prefill { .. } => {}
        }
    }
    panic!("the engine went away")
}

impl Recording {
    /// Reads the recording.
    pub fn load() -> Self {
        Self { lines: records("generate.jsonl") }
    }

    fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.lines.iter().filter(move |line| line["kind"] == kind)
    }

    /// Names of the recorded prompts.
    pub fn prompts(&self) -> impl Iterator<Item = &str> {
        self.of("prompt").map(|prompt| prompt.text("name"))
    }

    /// A greedy request for an answer to a recorded prompt, without speculation.
    pub fn greedy(&self, prompt: &str, max_tokens: usize) -> GenerateRequest {
        let recorded = self.of("prompt").find(|line| line["name"] == prompt).unwrap();
        GenerateRequest {
            prompt: recorded.ids("ids"),
            sampling: SamplingParams::default(),
            max_tokens,
            stop_tokens: recorded.ids("stop"),
            logprobs: None,
            speculation: Speculation { mode: SpeculationMode::Off, depth: 3 },
            session: SessionUse::default(),
            shared_prefix: 0,
        }
    }

    fn request(&self, run: &Value) -> GenerateRequest {
        GenerateRequest {
            sampling: SamplingParams {
                temperature: run.f64("temperature"),
                top_p: run.f64("top_p"),
                top_k: run.u64("top_k") as usize,
                presence_penalty: run.f64("presence"),
                frequency_penalty: run.f64("frequency"),
                seed: run["seed"].as_u64(),
                ..SamplingParams::default()
            },
            speculation: speculation(run),
            ..self.greedy(run.text("prompt"), run.u64("max_tokens") as usize)
        }
    }
}

/// How a recorded run speculated.
fn speculation(run: &Value) -> Speculation {
    if run["mode"] == "ar" {
        return Speculation { mode: SpeculationMode::Off, depth: 3 };
    }
    let copies = run["env"]["MTPLX_CONTEXT_COPY"] != "0";
    let mode = if copies { SpeculationMode::Both } else { SpeculationMode::Mtp };
    Speculation { mode, depth: run.u64("depth") as usize }
}

/// Whole generations equal those of MTPLX: tokens, ending, copied blocks. Returns the number of runs replayed and of those
/// left out.
///
/// Left out are sampled runs without capture-commit: there MTPLX forwards corrections at once, which draws in another
/// order. Greedy runs draw nothing, so that they must agree all the same.
pub fn replay(engine: &dyn Engine) -> (usize, usize) {
    let recording = Recording::load();
    let (mut replayed, mut left_out) = (0, 0);
    for run in recording.of("run") {
        let captured = run["mode"] == "ar" || run["env"]["MTPLX_FAMILY_CAPTURE_COMMIT"] == "1";
        if !captured && run["temperature"] != 0.0 {
            left_out += 1;
            continue;
        }
        let answer = answer(engine, recording.request(run));
        let case = format!("{} {}", run["prompt"], run["label"]);
        assert_eq!(answer.tokens, run.ids("tokens"), "{case}");
        let expected = if run["finish_reason"] == "stop" { FinishReason::Stop } else { FinishReason::Length };
        assert_eq!(answer.reason, expected, "{case}");
        let rounds = run["stats"]["context_copy"]["rounds"].as_u64();
        if let (Some(rounds), true) = (rounds, run["mode"] != "ar" && captured) {
            assert_eq!(answer.usage.speculation.copy_rounds, rounds, "{case}");
        }
        replayed += 1;
    }
    (replayed, left_out)
}

/// A greedy answer is the same in every mode, at every depth. Returns the number of answers compared.
pub fn greedy_equality(engine: &dyn Engine) -> usize {
    let recording = Recording::load();
    let mut compared = 0;
    for prompt in recording.prompts() {
        let plain = recording.greedy(prompt, 160);
        let expected = answer(engine, plain.clone()).tokens;
        for (name, mode) in SpeculationMode::NAMES {
            for depth in if mode.drafts() { 1..=Speculation::MAX_DEPTH } else { 3..=3 } {
                let request = GenerateRequest { speculation: Speculation { mode, depth }, ..plain.clone() };
                let found = answer(engine, request).tokens;
                assert_eq!(found, expected, "{prompt} with {name} at depth {depth}");
                compared += 1;
            }
        }
    }
    compared
}
