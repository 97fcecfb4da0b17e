//! Loading is strict, and one error lists everything that is wrong.
#![allow(clippy::unwrap_used, reason = "tests only")]

mod common;

use std::fs;
use std::path::Path;

use common::folder;
use ds4_array::{Device, Stream};
use ds4_models::{LoadOptions, ModelError};
use ds4_weights::{Checkpoint, ModelFiles, SafetensorsWriter, TensorSpec};
use serde_json::{Value, json};

/// A copy of the smallest golden checkpoint with its configuration and its tensors changed.
fn changed(
    config: impl FnOnce(&mut Value),
    tensors: impl Fn(&str) -> Option<(String, Option<Vec<usize>>)>,
) -> Result<(), ModelError> {
    let source = folder("golden/qwen4_exp/base");
    let target = tempfile::tempdir().unwrap();
    let mut json: Value = serde_json::from_slice(&fs::read(source.join("config.json")).unwrap()).unwrap();
    config(&mut json);
    fs::write(target.path().join("config.json"), json.to_string()).unwrap();
    write(&Checkpoint::load(&ModelFiles::open(&source).unwrap()).unwrap(), target.path(), tensors);
    let options = LoadOptions::new(&Stream::new(&Device::reference()));
    ds4_models::load(&ModelFiles::open(target.path()).unwrap(), &options).map(|_| ())
}

fn write(
    checkpoint: &Checkpoint,
    target: &Path,
    tensors: impl Fn(&str) -> Option<(String, Option<Vec<usize>>)>,
) {
    let kept: Vec<_> =
        checkpoint.tensors().filter_map(|tensor| Some((tensor, tensors(&tensor.name)?))).collect();
    let specs: Vec<TensorSpec> = kept
        .iter()
        .map(|(tensor, (name, shape))| {
            TensorSpec::new(name, tensor.dtype, shape.clone().unwrap_or_else(|| tensor.shape.clone()))
        })
        .collect();
    let mut writer = SafetensorsWriter::create(&target.join("model.safetensors"), &specs).unwrap();
    for (tensor, (name, _)) in kept {
        writer.write(&name, tensor.bytes.as_ref()).unwrap();
    }
    writer.finish().unwrap();
}

fn same(name: &str) -> Option<(String, Option<Vec<usize>>)> {
    Some((name.to_owned(), None))
}

#[test]
fn missing_surplus_and_wrong_tensors_are_listed_together() {
    let error = changed(
        |_| {},
        |name| match name {
            "lm_head.weight" => Some(("lm_haed.weight".to_owned(), None)),
            "model.layers.0.linear_attn.dt_bias" => None,
            "model.layers.0.linear_attn.A_log" => Some((name.to_owned(), Some(vec![2, 3]))),
            _ => same(name),
        },
    )
    .unwrap_err()
    .to_string();
    let lines: Vec<&str> = error.lines().map(str::trim).collect();
    assert_eq!(lines[0], "the checkpoint does not fit its config.json, 4 problems:");
    for expected in [
        "missing: layers.0.linear_attn.dt_bias [6]",
        "missing: lm_head.weight [167, 32]",
        "wrong: model.layers.0.linear_attn.A_log must be floats [6], is F32 [2, 3]",
        "surplus: lm_haed.weight",
    ] {
        assert!(lines.contains(&expected), "{expected} is not in {error}");
    }
}

#[test]
fn a_configuration_that_cannot_be_is_refused_with_the_field() {
    let cases: [(&str, Value, &str); 6] = [
        ("num_experts_per_tok", json!(99), "config.json: num_experts_per_tok is 99, but must be 1 to 7"),
        ("hidden_act", json!("gelu"), "config.json: hidden_act is gelu, but must be silu"),
        ("indexer_budget", json!(17), "config.json: indexer_budget is 17, but must be a multiple of"),
        (
            "layer_types",
            json!(["recurrent"]),
            "config.json: layer_types is recurrent, but must be linear_attention",
        ),
        ("hc_count", json!(0), "config.json: hc_count is 0, but must be at least 1"),
        (
            "ple_embed_dim",
            json!(63),
            "config.json: ple_embed_dim is 63, but must be a multiple of the number of n-gram",
        ),
    ];
    for (field, value, expected) in cases {
        let error = changed(|config| config[field] = value, same).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let short = |config: &mut Value| config["layer_types"] = json!(["linear_attention"]);
    let error = changed(short, same).unwrap_err().to_string();
    assert!(error.starts_with("config.json: layer_types has 1 entry, but num_hidden_layers is "), "{error}");
    let error = changed(|config| config["hidden_size"] = json!("wide"), same).unwrap_err().to_string();
    assert!(error.contains("invalid type: string \"wide\", expected usize"), "{error}");
}

#[test]
fn an_unknown_family_is_told_which_are_known() {
    let error = changed(|config| config["model_type"] = json!("llama"), same).unwrap_err().to_string();
    assert!(error.starts_with("model_type \"llama\" is not supported; supported are qwen4_exp"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let error = ds4_models::describe(&ModelFiles::open(empty.path()).unwrap()).unwrap_err().to_string();
    assert!(error.contains("has no config.json"), "{error}");
}

#[test]
fn a_vision_tower_is_skipped_and_counted() {
    let source = folder("golden/qwen4_exp/base");
    let target = tempfile::tempdir().unwrap();
    fs::copy(source.join("config.json"), target.path().join("config.json")).unwrap();
    let checkpoint = Checkpoint::load(&ModelFiles::open(&source).unwrap()).unwrap();
    write(&checkpoint, target.path(), same);
    let vision = [TensorSpec::new("model.visual.patch_embed.weight", ds4_array::DType::F32, vec![2])];
    let mut writer =
        SafetensorsWriter::create(&target.path().join("model-visual.safetensors"), &vision).unwrap();
    writer.write_f32("model.visual.patch_embed.weight", &[1.0, 2.0]).unwrap();
    writer.finish().unwrap();
    let files = ModelFiles::open(target.path()).unwrap();
    let options = LoadOptions::new(&Stream::new(&Device::reference()));
    let skipped = ds4_models::load(&files, &options).unwrap().skipped;
    assert_eq!(skipped, ds4_models::describe(&files).unwrap().skipped);
    let [part] = skipped.as_slice() else { panic!("one part is skipped, not {skipped:?}") };
    assert_eq!(part.to_string(), "1 tensor of the vision tower is skipped: pictures are not supported");
}
