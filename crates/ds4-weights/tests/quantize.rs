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

/// Codes and scales of the formats that DeepSeek and GLM publish, every code among them, and float32 values by their
/// definition.
mod small_floats {
    use ds4_dtype::block_formats::small_floats::{E2M1, E4M3, E8M0};
    use ds4_dtype::{AffineRow, Floats};

    use super::*;

    /// A stored tensor.
    struct Stored(&'static str, DType, Vec<usize>, Vec<u8>);

    /// Values of a matrix whose element (r, c) is `code(r, c)` times `scale(r, c)`.
    fn product(
        [rows, columns]: [usize; 2],
        code: impl Fn(usize, usize) -> f32,
        scale: impl Fn(usize, usize) -> f32,
    ) -> Vec<f32> {
        (0..rows * columns)
            .map(|i| (i / columns, i % columns))
            .map(|(r, c)| code(r, c) * scale(r, c))
            .collect()
    }

    fn checkpoint(tensors: &[Stored], config: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let specs: Vec<TensorSpec> = tensors
            .iter()
            .map(|Stored(name, dtype, shape, _)| TensorSpec::new(*name, *dtype, shape.clone()))
            .collect();
        let mut writer = SafetensorsWriter::create(&folder.path().join("model.safetensors"), &specs).unwrap();
        for Stored(name, _, _, bytes) in tensors {
            writer.write(name, bytes).unwrap();
        }
        writer.finish().unwrap();
        fs::write(folder.path().join("config.json"), config).unwrap();
        folder
    }

    /// Rows 0 to 129 of 160 columns: two blocks of 128 in each direction, the second ones incomplete. No code is NaN.
    fn fp8() -> (Stored, Stored, Vec<f32>) {
        let size = [130, 160];
        let code = |r: usize, c: usize| ((r * 160 + c) % 256) as u8 & !1;
        let scale = |r: usize, c: usize| 0.3 + (r / 128 * 2 + c / 128) as f32 / 7.0;
        let codes = (0..size[0] * size[1]).map(|i| code(i / 160, i % 160)).collect();
        let scales = [(0, 0), (0, 128), (128, 0), (128, 128)].map(|(r, c)| scale(r, c));
        (
            Stored("layers.0.attn.wq_a.weight", DType::F8E4M3, size.to_vec(), codes),
            Stored(
                "layers.0.attn.wq_a.weight_scale_inv",
                DType::F32,
                vec![2, 2],
                scales.iter().flat_map(|scale| scale.to_le_bytes()).collect(),
            ),
            product(size, |r, c| E4M3[usize::from(code(r, c))], scale),
        )
    }

    /// Five rows of 64 columns, two values in a byte, a power of two for each 32.
    fn fp4() -> (Stored, Stored, Vec<f32>) {
        let byte = |i: usize| (i * 37 % 256) as u8;
        let nibble = |r: usize, c: usize| (byte(r * 32 + c / 2) >> (c % 2 * 4)) & 15;
        let scale = |r: usize, c: usize| 120 + (r * 2 + c / 32) as u8;
        (
            Stored("layers.0.ffn.experts.0.w1.weight", DType::I8, vec![5, 32], (0..160).map(byte).collect()),
            Stored(
                "layers.0.ffn.experts.0.w1.scale",
                DType::F8E8M0,
                vec![5, 2],
                (0..10).map(|i| scale(i / 2, i % 2 * 32)).collect(),
            ),
            product([5, 64], |r, c| E2M1[usize::from(nibble(r, c))], |r, c| E8M0[usize::from(scale(r, c))]),
        )
    }

    fn assert_affine(after: &Checkpoint, base: &str, expected: &AffineRow, dtype: DType) {
        let tensor = |part: &str| after.get(&format!("{base}.{part}")).unwrap();
        assert_eq!(tensor("weight").u32s().unwrap(), expected.packed, "{base}");
        for (part, values) in [("scales", &expected.scales), ("biases", &expected.biases)] {
            assert_eq!(tensor(part).dtype, dtype, "{base}");
            let rounded = match dtype {
                DType::BF16 => values.iter().map(|&value| bf16::from_f32(value).to_f32()).collect(),
                _ => values.clone(),
            };
            assert_eq!(tensor(part).floats().map(Floats::to_f32).unwrap(), rounded, "{base}");
        }
    }

    #[test]
    fn they_become_what_their_decoded_values_become() {
        let ((codes8, scales8, values8), (codes4, scales4, values4)) = (fp8(), fp4());
        let config = r#"{"model_type": "deepseek_v4", "expert_dtype": "fp4",
                         "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}"#;
        let from = checkpoint(&[codes8, scales8, codes4, scales4], config);
        for bits in [4, 8] {
            let parent = tempfile::tempdir().unwrap();
            let out = parent.path().join("q");
            let report = run(from.path(), &out, bits, 32).unwrap();
            assert_eq!((report.quantized, report.copied), (2, 0));
            let after = load(&out);
            assert_eq!(after.names().count(), 6, "no scales of the source are left");
            let layout = AffineLayout::new(bits, 32).unwrap();
            let expected = |values: &[f32]| layout.encode_row(values).unwrap();
            assert_affine(&after, "layers.0.attn.wq_a", &expected(&values8), DType::F32);
            assert_affine(&after, "layers.0.ffn.experts.0.w1", &expected(&values4), DType::BF16);
            let config: serde_json::Value =
                serde_json::from_slice(&fs::read(out.join("config.json")).unwrap()).unwrap();
            assert_eq!(config["quantization_config"]["mode"], "affine");
            assert_eq!(config.get("expert_dtype"), None);
        }
    }

    #[test]
    fn what_is_kept_keeps_its_scales() {
        let name = "layers.0.attn.indexer.wq_b";
        // Enough blocks that the scales could be quantised themselves.
        let (rows, columns) = (32, 512);
        let codes = Stored(
            "layers.0.attn.indexer.wq_b.weight",
            DType::F8E4M3,
            vec![rows, columns],
            vec![56; rows * columns],
        );
        let bytes: Vec<u8> = (0..rows * 32).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let scales = Stored("layers.0.attn.indexer.wq_b.scale", DType::F32, vec![rows, 32], bytes.clone());
        let (codes4, scales4, _) = fp4();
        let from = checkpoint(&[codes, scales, codes4, scales4], "{}");
        let parent = tempfile::tempdir().unwrap();
        let report = run(from.path(), &parent.path().join("q"), 8, 32).unwrap();
        assert_eq!((report.quantized, report.copied, report.unsuitable), (1, 2, vec![]));
        let after = load(&parent.path().join("q"));
        assert_eq!(after.get(&format!("{name}.weight")).unwrap().dtype, DType::F8E4M3);
        assert_eq!(after.get(&format!("{name}.scale")).unwrap().bytes.as_ref(), bytes);
    }

    #[test]
    fn faults_of_the_scales_are_named() {
        let parent = tempfile::tempdir().unwrap();
        let error = |tensors: &[Stored]| {
            let from = checkpoint(tensors, "{}");
            run(from.path(), &parent.path().join("q"), 8, 32).unwrap_err().to_string()
        };
        let (codes, _, _) = fp8();
        let missing = error(&[codes]);
        assert_eq!(
            missing,
            "tensor `layers.0.attn.wq_a.weight` cannot be decoded: its scales are missing, looked for as \
             `layers.0.attn.wq_a.weight_scale_inv` and `layers.0.attn.wq_a.scale`"
        );
        let (packed, _, _) = fp4();
        let missing = error(&[packed]);
        assert!(
            missing.contains(
                "its scales are missing, looked for as `layers.0.ffn.experts.0.w1.weight_scale_inv`"
            ),
            "{missing}"
        );
        let (codes, Stored(name, dtype, _, bytes), _) = fp8();
        let shape = error(&[codes, Stored(name, dtype, vec![4, 1], bytes)]);
        assert!(shape.ends_with("its scales `layers.0.attn.wq_a.weight_scale_inv` are F32 [4, 1], which fits no size of blocks"), "{shape}");
        let (codes, Stored(name, _, _, _), _) = fp8();
        let bytes = vec![0; 8];
        let dtype = error(&[codes, Stored(name, DType::BF16, vec![2, 2], bytes)]);
        assert!(dtype.contains("are BF16 [2, 2]"), "{dtype}");
        let (Stored(name, dtype, shape, mut bytes), scales, _) = fp8();
        bytes[1000] = 0x7f;
        let nan = error(&[Stored(name, dtype, shape, bytes), scales]);
        assert!(nan.contains("layers.0.attn.wq_a.weight") && nan.contains("NaN"), "{nan}");
        assert!(listing(parent.path()).is_empty());
    }
}
