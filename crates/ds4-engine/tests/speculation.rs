//! Speculation on the demo model: whole generations equal MTPLX's recordings, and greedy answers are the same with and
//! without it.
#![allow(clippy::unwrap_used, reason = "tests only")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use ds4_array::{Device, Stream};
use ds4_engine::{EngineOptions, LocalEngine, SessionOptions};
use ds4_engine_api::{
    Engine, Event, FinishReason, Flow, GenerateRequest, SamplingParams, Speculation, SpeculationMode, Usage,
};
use ds4_models::LoadOptions;
use ds4_weights::ModelFiles;
use serde_json::Value;

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn engine() -> LocalEngine {
    let files = ModelFiles::open(&folder("demo/qwen4_exp")).unwrap();
    let options = LoadOptions::new(&Stream::new(&Device::cpu(2)));
    let loaded = ds4_models::load(&files, &options).unwrap();
    LocalEngine::start(
        loaded,
        EngineOptions {
            model_id: "demo".to_owned(),
            context: None,
            max_waiting: 4,
            sessions: SessionOptions::default(),
        },
    )
}

fn answer(engine: &LocalEngine, request: GenerateRequest) -> (Vec<u32>, FinishReason, Usage) {
    let (sender, events) = channel();
    let sink = move |event| if sender.send(event).is_ok() { Flow::Continue } else { Flow::Stop };
    engine.submit(request, Box::new(sink)).unwrap();
    let mut tokens = Vec::new();
    for event in events {
        match event {
            Event::Token { id, .. } => tokens.push(id),
            Event::Finished { reason, usage } => return (tokens, reason, usage),
            Event::Failed(error) => panic!("{error}"),
            Event::Queued { .. } | Event::Started { .. } | Event::Prefill { .. } => {}
        }
    }
    panic!("the engine went away")
}

/// The recording: prompts by name, and runs.
struct Recording {
    lines: Vec<Value>,
}

impl Recording {
    fn load() -> Self {
        let text = fs::read_to_string(folder("golden/mtplx_receipts/generate.jsonl")).unwrap();
        Self { lines: text.lines().map(|line| serde_json::from_str(line).unwrap()).collect() }
    }

    fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.lines.iter().filter(move |line| line["kind"] == kind)
    }

    fn prompt(&self, name: &str) -> &Value {
        self.of("prompt").find(|prompt| prompt["name"] == name).unwrap()
    }
}

fn ids(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn request(prompt: &Value, run: &Value, speculation: Speculation) -> GenerateRequest {
    let number = |name: &str| run[name].as_f64().unwrap();
    GenerateRequest {
        prompt: ids(&prompt["ids"]),
        sampling: SamplingParams {
            temperature: number("temperature"),
            top_p: number("top_p"),
            top_k: run["top_k"].as_u64().unwrap() as usize,
            min_p: 0.0,
            presence_penalty: number("presence"),
            frequency_penalty: number("frequency"),
            logit_bias: Vec::new(),
            seed: run["seed"].as_u64(),
        },
        max_tokens: run["max_tokens"].as_u64().unwrap() as usize,
        stop_tokens: ids(&prompt["stop"]),
        logprobs: None,
        speculation,
        session: None,
        shared_prefix: 0,
    }
}

/// How a recorded run speculated.
fn speculation(run: &Value) -> Speculation {
    if run["mode"] == "ar" {
        return Speculation { mode: SpeculationMode::Off, depth: 3 };
    }
    let copies = run["env"]["MTPLX_CONTEXT_COPY"] != "0";
    let mode = if copies { SpeculationMode::Both } else { SpeculationMode::Mtp };
    Speculation { mode, depth: run["depth"].as_u64().unwrap() as usize }
}

#[test]
fn whole_generations_equal_those_of_mtplx() {
    let (engine, recording) = (engine(), Recording::load());
    let mut replayed = 0;
    for run in recording.of("run") {
        // Without capture-commit MTPLX forwards corrections at once, which draws in another order; greedy runs draw
        // nothing, so that they must agree all the same.
        let captured = run["mode"] == "ar" || run["env"]["MTPLX_FAMILY_CAPTURE_COMMIT"] == "1";
        if !captured && run["temperature"] != 0.0 {
            continue;
        }
        let prompt = recording.prompt(run["prompt"].as_str().unwrap());
        let (tokens, reason, usage) = answer(&engine, request(prompt, run, speculation(run)));
        let case = format!("{} {}", run["prompt"], run["label"]);
        assert_eq!(tokens, ids(&run["tokens"]), "{case}");
        let expected = if run["finish_reason"] == "stop" { FinishReason::Stop } else { FinishReason::Length };
        assert_eq!(reason, expected, "{case}");
        if run["mode"] != "ar" && captured {
            let copied = &run["stats"]["context_copy"];
            if let Some(rounds) = copied["rounds"].as_u64() {
                assert_eq!(usage.speculation.copy_rounds, rounds, "{case}");
            }
        }
        replayed += 1;
    }
    assert!(replayed >= 30, "{replayed}");
}

#[test]
fn a_greedy_answer_is_the_same_with_and_without_speculation() {
    let (engine, recording) = (engine(), Recording::load());
    for prompt in recording.of("prompt") {
        let run = serde_json::json!({
            "temperature": 0.0, "top_p": 1.0, "top_k": 0, "presence": 0.0, "frequency": 0.0, "seed": 0, "max_tokens": 160,
        });
        let plain = Speculation { mode: SpeculationMode::Off, depth: 3 };
        let (expected, ..) = answer(&engine, request(prompt, &run, plain));
        for (name, mode) in SpeculationMode::NAMES {
            let drafts = matches!(mode, SpeculationMode::Mtp | SpeculationMode::Both);
            for depth in if drafts { 1..=Speculation::MAX_DEPTH } else { 3..=3 } {
                let (tokens, ..) = answer(&engine, request(prompt, &run, Speculation { mode, depth }));
                assert_eq!(tokens, expected, "{} with {name} at depth {depth}", prompt["name"]);
            }
        }
    }
}

#[test]
fn a_sampled_answer_reproduces_with_its_seed_in_the_automatic_mode() {
    let (engine, recording) = (engine(), Recording::load());
    let prompt = recording.prompt("prime");
    let run = serde_json::json!({
        "temperature": 1.0, "top_p": 0.95, "top_k": 20, "presence": 0.0, "frequency": 0.0, "seed": 5, "max_tokens": 120,
    });
    let first = answer(&engine, request(prompt, &run, Speculation::default())).0;
    for _ in 0..3 {
        assert_eq!(answer(&engine, request(prompt, &run, Speculation::default())).0, first);
    }
}

#[test]
fn usage_tells_what_speculation_did() {
    let (engine, recording) = (engine(), Recording::load());
    let prompt = recording.prompt("prime");
    let run = serde_json::json!({
        "temperature": 0.0, "top_p": 1.0, "top_k": 0, "presence": 0.0, "frequency": 0.0, "seed": 0, "max_tokens": 200,
    });
    let speculation = Speculation { mode: SpeculationMode::Mtp, depth: 3 };
    let (tokens, _, usage) = answer(&engine, request(prompt, &run, speculation));
    let did = usage.speculation;
    assert_eq!(did.accepted, did.accepted_by_position.iter().sum::<u64>());
    assert!(did.cycles > 0 && did.accepted * 2 > did.drafted, "{did:?}");
    assert!(did.verify_passes < tokens.len() as u64 / 2, "{did:?} for {} tokens", tokens.len());
    assert!(did.draft_seconds > 0.0 && did.verify_seconds > 0.0);
    let status = engine.status();
    assert_eq!((status.drafted_tokens, status.accepted_tokens), (did.drafted, did.accepted));
}
