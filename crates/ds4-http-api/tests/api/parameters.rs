//! What the engine gets of a request's parameters, and which defaults it gets.

use ds4_engine_api::{GenerateRequest, Speculation, SpeculationMode};
use serde_json::{Value, json};

use crate::support::{CONTEXT, Server, ping};

fn engine_request(parameters: Value) -> GenerateRequest {
    let server = Server::start();
    let response = server.chat(&ping(parameters.clone()));
    assert_eq!(response.status, 200, "{parameters}: {}", response.body);
    server.last_request(1)
}

#[test]
fn without_parameters_the_checkpoints_defaults_count() {
    let request = engine_request(json!({}));
    let sampling = request.sampling;
    assert_eq!((sampling.temperature, sampling.top_p, sampling.seed), (0.7, 0.9, None));
    assert_eq!((sampling.presence_penalty, sampling.frequency_penalty, sampling.min_p), (0.0, 0.0, 0.0));
    assert_eq!(request.max_tokens, 512, "max_new_tokens of generation_config.json");
    assert_eq!(request.stop_tokens, [2, 0]);
    assert_eq!(request.logprobs, None);
}

#[test]
fn every_parameter_arrives() {
    let request = engine_request(json!({
        "temperature": 0, "top_p": 0.5, "top_k": 7, "min_p": 0.25, "presence_penalty": -2, "frequency_penalty": 1.5,
        "max_tokens": 99, "logit_bias": {"5": -100, "6": 2.5}, "logprobs": true, "top_logprobs": 20, "seed": 12,
    }));
    let sampling = request.sampling;
    assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p), (0.0, 0.5, 7, 0.25));
    assert_eq!((sampling.presence_penalty, sampling.frequency_penalty), (-2.0, 1.5));
    assert_eq!(sampling.logit_bias, [(5, -100.0), (6, 2.5)]);
    assert_eq!((request.max_tokens, request.logprobs, sampling.seed), (99, Some(20), Some(12)));
}

#[test]
fn any_64_bit_seed_is_a_seed() {
    for (seed, bits) in [
        (json!(0), 0),
        (json!(-1), u64::MAX),
        (json!(i64::MIN), 1 << 63),
        (json!(i64::MAX), i64::MAX as u64),
        (json!(u64::MAX), u64::MAX),
    ] {
        assert_eq!(engine_request(json!({"seed": seed})).sampling.seed, Some(bits), "{seed}");
    }
    assert_eq!(engine_request(json!({"seed": null})).sampling.seed, None);
}

#[test]
fn drafting_ahead_can_be_chosen_for_a_request() {
    assert_eq!(engine_request(json!({})).speculation, Speculation::default());
    let chosen = engine_request(json!({"speculate": "copy", "draft_depth": 5})).speculation;
    assert_eq!(chosen, Speculation { mode: SpeculationMode::Copy, depth: 5 });
    let partly = engine_request(json!({"speculate": "off"})).speculation;
    assert_eq!(partly, Speculation { mode: SpeculationMode::Off, ..Speculation::default() });
}

#[test]
fn the_ends_of_the_ranges_are_inside() {
    let sampling = engine_request(json!({"temperature": 1e-9, "top_p": 0, "top_k": 1, "min_p": 1})).sampling;
    assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p), (1e-9, 0.0, 1, 1.0));
    let sampling = engine_request(json!({"temperature": 2, "top_p": 1, "top_k": -1, "min_p": 0})).sampling;
    assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p), (2.0, 1.0, 0, 0.0));
}

#[test]
fn max_completion_tokens_goes_before_max_tokens() {
    assert_eq!(engine_request(json!({"max_tokens": 5, "max_completion_tokens": 6})).max_tokens, 6);
    assert!(
        engine_request(json!({"max_tokens": 1_000_000_000_u64})).max_tokens > CONTEXT,
        "the engine lowers it"
    );
}

#[test]
fn what_changes_nothing_is_accepted() {
    engine_request(json!({
        "n": 1, "response_format": {"type": "text"}, "parallel_tool_calls": true, "tools": [], "tool_choice": "auto",
        "modalities": ["text"], "verbosity": "medium", "functions": [], "audio": null, "stop": [], "logit_bias": {},
        "user": "u", "metadata": {"a": "b"}, "store": true, "service_tier": "auto", "prompt_cache_key": "k",
        "safety_identifier": "s", "stream_options": null, "logprobs": false, "repetition_penalty": 1.0, "min_tokens": 0,
        "ignore_eos": false, "best_of": 1, "echo": false, "frobnicate": {"deeply": ["unknown"]},
    }));
}

#[test]
fn the_model_goes_by_its_names() {
    let server = Server::with(ds4_http_api::ApiOptions {
        model_id: Some("org/served".into()),
        ..ds4_http_api::ApiOptions::default()
    });
    for name in [json!("org/served"), json!("demo"), json!("default"), Value::Null] {
        let response = server.chat(&ping(json!({"model": name})));
        assert_eq!(response.json()["model"], "org/served", "{name}: {}", response.body);
    }
    assert_eq!(server.get("/v1/models/org/served").json()["id"], "org/served");
}
