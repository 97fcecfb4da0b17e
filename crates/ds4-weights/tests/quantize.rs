//! Quantising checkpoints: what changes, what stays, and what is refused.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails by panicking, as the test does")]

use std::fs;
use std::path::{Path, PathBuf};

use ds4_dtype::{AffineLayout, DType, bf16};
use ds4_weights::quantize::{QuantizeError, QuantizeOptions, QuantizeReport, keeps_precision, quantize};
use ds4_weights::{Checkpoint, ModelFiles, SafetensorsWriter, TensorSpec, WeightsError};
use tempfile::TempDir;

const EXPERTS: &str = "model.layers.0.mlp.experts.gate_up_proj";
const LINEAR: &str = "model.layers.0.linear_attn.out_proj.weight";
const ODD: &str = "model.layers.0.ple.value_proj.weight";
const ROUTER: &str = "model.layers.0.mlp.gate.weight";
const NORM: &str = "model.norm.weight";

/// A checkpoint with one tensor of each sort; `spoil` may change a weight's values before they are written.
fn source(spoil: impl Fn(&str, &mut Vec<f32>)) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let specs = [
        TensorSpec::new(EXPERTS, DType::BF16, [3, 4, 64]),
        TensorSpec::new(LINEAR, DType::F32, [5, 128]),
        TensorSpec::new(ODD, DType::BF16, [4, 48]),
        TensorSpec::new(ROUTER, DType::BF16, [3, 64]),
        TensorSpec::new(NORM, DType::BF16, [64]),
        TensorSpec::new("ids", DType::I64, [2, 64]),
    ];
    let mut writer = SafetensorsWriter::create(&folder.path().join("model.safetensors"), &specs).unwrap();
    for spec in &specs {
        let elements: usize = spec.shape.iter().product();
        let mut values: Vec<f32> = (0..elements).map(|i| ((i * 37 % 101) as f32 - 50.0) / 16.0).collect();
        spoil(&spec.name, &mut values);
        let bytes: Vec<u8> = match spec.dtype {
            DType::BF16 => values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect(),
            DType::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            _ => values.iter().flat_map(|&v| (v as i64).to_le_bytes()).collect(),
        };
        writer.write(&spec.name, &bytes).unwrap();
    }
    writer.finish().unwrap();
    let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    file("config.json", r#"{"model_type":"qwen4_exp","text_config":{"hidden_size":64}}"#);
    file("tokenizer.json", "{ }");
    file("samples.txt", "not part of a model");
    folder
}

fn run(from: &Path, out: &Path, bits: u32, group: usize) -> Result<QuantizeReport, QuantizeError> {
    let options = QuantizeOptions { bits, group, keep: &keeps_precision };
    quantize(&ModelFiles::open(from).unwrap(), out, options, &mut |_, _, _| {})
}

fn load(folder: &Path) -> Checkpoint {
    Checkpoint::load(&ModelFiles::open(folder).unwrap()).unwrap()
}

/// The names in a folder, sorted.
fn listing(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn large_weights_are_packed_and_the_rest_is_copied() {
    let from = source(|_, _| {});
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("new/q4");
    let mut seen = Vec::new();
    let options = QuantizeOptions { bits: 4, group: 32, keep: &keeps_precision };
    let files = ModelFiles::open(from.path()).unwrap();
    let report = quantize(&files, &out, options, &mut |done, total, name| {
        seen.push((done, total, name.to_owned()));
    })
    .unwrap();

    assert_eq!((report.quantized, report.copied), (2, 4));
    assert_eq!(report.unsuitable, [(ODD.to_owned(), vec![4, 48])]);
    assert_eq!(listing(&out), ["config.json", "model.safetensors", "tokenizer.json"]);
    assert!(seen.is_sorted_by_key(|(done, _, _)| *done));
    let (done, total, _) = seen.last().unwrap();
    assert_eq!((done, *total), (total, report.bytes_before));

    let (before, after) = (load(from.path()), load(&out));
    for name in [ODD, ROUTER, NORM, "ids"] {
        let (was, is) = (before.get(name).unwrap(), after.get(name).unwrap());
        assert_eq!((was.dtype, &was.shape, was.bytes.as_ref()), (is.dtype, &is.shape, is.bytes.as_ref()));
    }
    let shape = |name: &str| (after.get(name).unwrap().dtype, after.get(name).unwrap().shape.clone());
    assert_eq!(shape(&format!("{EXPERTS}.weight")), (DType::U32, vec![3, 4, 8]));
    assert_eq!(shape(&format!("{EXPERTS}.scales")), (DType::BF16, vec![3, 4, 2]));
    assert_eq!(shape(&format!("{EXPERTS}.biases")), (DType::BF16, vec![3, 4, 2]));
    let base = LINEAR.strip_suffix(".weight").unwrap();
    assert_eq!(shape(LINEAR), (DType::U32, vec![5, 16]));
    assert_eq!(shape(&format!("{base}.scales")), (DType::F32, vec![5, 4]));
    assert_eq!(after.names().count(), 4 + 6);

    let expected = AffineLayout::new(4, 32)
        .unwrap()
        .encode_row(&before.get(EXPERTS).unwrap().floats().unwrap().to_f32());
    assert_eq!(after.get(&format!("{EXPERTS}.weight")).unwrap().u32s().unwrap(), expected.unwrap().packed);

    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["model_type"], "qwen4_exp");
    for entry in ["quantization", "quantization_config"] {
        assert_eq!(config[entry], serde_json::json!({ "group_size": 32, "bits": 4, "mode": "affine" }));
    }
}

#[test]
fn a_tensor_larger_than_a_chunk_is_the_same_in_pieces() {
    // Wide enough that a chunk is a few rows, and a row count that divides into nothing.
    let folder = tempfile::tempdir().unwrap();
    let (rows, width) = (37, 1 << 17);
    let spec = [TensorSpec::new("lm_head.weight", DType::F32, [rows, width])];
    let values: Vec<f32> = (0..rows * width).map(|i| (i % 8191) as f32 - 4000.0).collect();
    let mut writer = SafetensorsWriter::create(&folder.path().join("model.safetensors"), &spec).unwrap();
    writer.write_f32("lm_head.weight", &values).unwrap();
    writer.finish().unwrap();
    fs::write(folder.path().join("config.json"), "{}").unwrap();
    let out = tempfile::tempdir().unwrap();
    run(folder.path(), out.path(), 8, 128).unwrap();

    let expected = AffineLayout::new(8, 128).unwrap().encode_row(&values).unwrap();
    let after = load(out.path());
    assert!(after.get("lm_head.weight").unwrap().u32s().unwrap() == expected.packed);
    assert!(after.get("lm_head.scales").unwrap().floats().unwrap().to_f32() == expected.scales);
    assert!(after.get("lm_head.biases").unwrap().floats().unwrap().to_f32() == expected.biases);
}

#[test]
fn unsupported_options_are_refused_before_anything_is_written() {
    let from = source(|_, _| {});
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("q");
    assert!(matches!(run(from.path(), &out, 5, 32), Err(QuantizeError::Layout(_))));
    assert!(matches!(run(from.path(), &out, 4, 48), Err(QuantizeError::Layout(_))));
    assert!(listing(parent.path()).is_empty());
}

#[test]
fn output_folders_in_use_are_refused() {
    let from = source(|_, _| {});
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("q");
    let before = listing(from.path());
    assert!(matches!(run(from.path(), from.path(), 4, 32), Err(QuantizeError::SameFolder { .. })));
    assert!(matches!(run(from.path(), &from.path().join("."), 4, 32), Err(QuantizeError::SameFolder { .. })));
    assert_eq!(listing(from.path()), before);
    assert!(matches!(run(from.path(), Path::new("/"), 4, 32), Err(QuantizeError::BadOutput { .. })));

    fs::write(&out, "a file").unwrap();
    assert!(matches!(run(from.path(), &out, 4, 32), Err(QuantizeError::BadOutput { .. })));
    fs::remove_file(&out).unwrap();
    fs::create_dir(&out).unwrap();
    fs::write(out.join("precious"), "").unwrap();
    assert!(matches!(run(from.path(), &out, 4, 32), Err(QuantizeError::NotEmpty { .. })));
    assert_eq!(listing(&out), ["precious"]);
    fs::remove_file(out.join("precious")).unwrap();
    fs::create_dir(parent.path().join("q.partial")).unwrap();
    assert!(matches!(run(from.path(), &out, 4, 32), Err(QuantizeError::Leftover { .. })));
    fs::remove_dir(parent.path().join("q.partial")).unwrap();
    run(from.path(), &out, 4, 32).unwrap();
    assert_eq!(listing(parent.path()), ["q"]);
}

#[test]
fn a_quantised_source_is_refused() {
    let from = source(|_, _| {});
    let parent = tempfile::tempdir().unwrap();
    let (out, again): (PathBuf, PathBuf) = (parent.path().join("q"), parent.path().join("qq"));
    run(from.path(), &out, 4, 32).unwrap();
    assert!(matches!(run(&out, &again, 4, 32), Err(QuantizeError::AlreadyQuantized { .. })));
    // Also when the config does not say so.
    fs::write(out.join("config.json"), "{}").unwrap();
    assert!(matches!(run(&out, &again, 4, 32), Err(QuantizeError::AlreadyQuantized { .. })));
    assert!(!again.exists());
}

#[test]
fn a_source_that_cannot_be_used_leaves_nothing_behind() {
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("q");
    let from = source(|name, values| {
        if name == LINEAR {
            values[130] = f32::NAN;
        }
    });
    let error = run(from.path(), &out, 4, 32).unwrap_err();
    assert!(error.to_string().contains(LINEAR), "{error}");
    assert!(matches!(error, QuantizeError::Tensor { .. }));

    fs::write(from.path().join("config.json"), "[]").unwrap();
    assert!(matches!(run(from.path(), &out, 4, 32), Err(QuantizeError::BadConfig { .. })));
    fs::remove_file(from.path().join("config.json")).unwrap();
    assert!(matches!(run(from.path(), &out, 4, 32), Err(QuantizeError::NoConfig { .. })));
    fs::write(from.path().join("config.json"), "{}").unwrap();
    fs::write(from.path().join("model.safetensors"), "short").unwrap();
    let error = run(from.path(), &out, 4, 32).unwrap_err();
    assert!(matches!(error, QuantizeError::Weights(WeightsError::Invalid { .. })), "{error}");
    assert!(listing(parent.path()).is_empty());
}

#[test]
fn a_model_without_a_fitting_weight_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let spec = [TensorSpec::new("a.weight", DType::F32, [2, 48])];
    let mut writer = SafetensorsWriter::create(&folder.path().join("model.safetensors"), &spec).unwrap();
    writer.write_f32("a.weight", &[1.0; 96]).unwrap();
    writer.finish().unwrap();
    fs::write(folder.path().join("config.json"), "{}").unwrap();
    let out = folder.path().join("out");
    assert!(matches!(run(folder.path(), &out, 4, 32), Err(QuantizeError::NothingToQuantize { .. })));
    assert!(!out.exists());
}
