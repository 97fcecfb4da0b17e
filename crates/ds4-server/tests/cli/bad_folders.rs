//! Checkpoint folders that cannot be used: the reason is said, with what to do, and the exit code is 1.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

#[track_caller]
fn refused(sandbox: &Sandbox, parts: &[&str]) {
    for command in ["inspect", "run"] {
        let arguments =
            if command == "run" { vec!["run", "ping", "--model", "model"] } else { vec!["inspect", "model"] };
        let ran = sandbox.run(&arguments);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        for part in parts {
            assert!(ran.stderr.contains(part), "{command}: {part}: {}", ran.stderr);
        }
    }
}

fn change_config(folder: &Path, from: &str, to: &str) {
    let path = folder.join("config.json");
    let config = fs::read_to_string(&path).unwrap();
    assert!(config.contains(from));
    fs::write(path, config.replace(from, to)).unwrap();
}

#[test]
fn no_folder_and_an_empty_one() {
    let sandbox = Sandbox::new();
    refused(&sandbox, &["model is not a folder", "hint: `--model demo`"]);
    fs::create_dir(sandbox.path("model")).unwrap();
    refused(&sandbox, &["model has no config.json", "hint: "]);
}

#[test]
fn another_family() {
    let sandbox = Sandbox::new();
    change_config(&sandbox.demo_copy("model"), "\"qwen4_exp\"", "\"llama\"");
    refused(&sandbox, &["model_type \"llama\" is not supported; supported are qwen4_exp"]);
}

#[test]
fn settings_of_a_wrong_type_and_a_missing_family() {
    let sandbox = Sandbox::new();
    let folder = sandbox.demo_copy("model");
    change_config(&folder, "\"vocab_size\": 4096", "\"vocab_size\": \"many\"");
    refused(&sandbox, &["config.json of model, vocab_size: invalid type: string \"many\""]);
    change_config(&folder, "\"vocab_size\": \"many\"", "\"vocab_size\": 4096");
    change_config(&folder, "\"rope_theta\": 10000.0", "\"rope_theta\": [1]");
    refused(&sandbox, &["config.json of model, rope_parameters.rope_theta: invalid type: sequence"]);
    sandbox.write("model/config.json", "{}");
    refused(&sandbox, &["config.json of model has no model_type; supported are qwen4_exp"]);
}

#[test]
fn a_context_without_end_is_reckoned_with() {
    let sandbox = Sandbox::new();
    change_config(
        &sandbox.demo_copy("model"),
        "\"max_position_embeddings\": 4096",
        "\"max_position_embeddings\": 4611686018427387904",
    );
    let page = sandbox.run(&["inspect", "model"]).succeeded().stdout;
    assert!(page.contains("TB for caches at 4611686018427387904 tokens"), "{page}");
}

#[test]
fn sizes_that_do_not_fit_the_weights() {
    let sandbox = Sandbox::new();
    change_config(
        &sandbox.demo_copy("model"),
        "\"moe_intermediate_size\": 32",
        "\"moe_intermediate_size\": 64",
    );
    refused(
        &sandbox,
        &["does not fit its config.json", "layers.0.mlp.experts.gate_up_proj must be", "layers.7."],
    );
}

#[test]
fn a_weight_file_cut_short_and_a_missing_one() {
    let sandbox = Sandbox::new();
    let folder = sandbox.demo_copy("model");
    let shard = folder.join("model-00002-of-00002.safetensors");
    fs::OpenOptions::new().write(true).open(&shard).unwrap().set_len(1_000_000).unwrap();
    refused(&sandbox, &["model-00002-of-00002.safetensors"]);
    fs::remove_file(shard).unwrap();
    refused(&sandbox, &["model-00002-of-00002.safetensors"]);
}

#[test]
fn no_tokenizer_and_a_broken_template() {
    let sandbox = Sandbox::new();
    let folder = sandbox.demo_copy("model");
    fs::write(folder.join("chat_template.jinja"), "{% if %}").unwrap();
    refused(&sandbox, &["the chat template cannot be parsed at line 1"]);
    fs::remove_file(folder.join("tokenizer.json")).unwrap();
    refused(&sandbox, &["model has no tokenizer.json"]);
}

#[test]
fn a_tokenizer_of_another_model() {
    let sandbox = Sandbox::new();
    let folder = sandbox.demo_copy("model");
    let path = folder.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mut beyond = tokenizer["added_tokens"][0].clone();
    beyond["id"] = json!(4096);
    beyond["content"] = json!("<|beyond|>");
    tokenizer["added_tokens"].as_array_mut().unwrap().push(beyond);
    fs::write(&path, tokenizer.to_string()).unwrap();
    refused(
        &sandbox,
        &["tokenizer.json has ids up to 4096, and the model's vocabulary ends at 4095", "copy"],
    );
}

#[test]
fn settings_that_are_not_applied_are_named_and_the_model_runs() {
    let sandbox = Sandbox::new();
    let folder = sandbox.demo_copy("model");
    fs::write(folder.join("generation_config.json"), r#"{"eos_token_id": 2, "repetition_penalty": 1.05}"#)
        .unwrap();
    let named = "generation_config.json sets repetition_penalty to 1.05, which is not supported";
    let ran = sandbox.run(&["run", "--model", "model", "--max-tokens", "1", "ping"]).succeeded();
    assert_eq!(ran.stderr.matches(&format!("note: {named}")).count(), 1, "{}", ran.stderr);
    let page = sandbox.run(&["inspect", "model"]).succeeded().stdout;
    assert!(page.contains(named), "{page}");
}
