//! Which files make a model, and what the loader says when they do not fit together.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails by panicking, as the test does")]

use std::fs;
use std::path::Path;

use ds4_dtype::DType;
use ds4_weights::{
    Checkpoint, ModelFiles, Problem, ProblemKind, SafetensorsWriter, TensorSpec, WeightsError,
};

/// A safetensors file of U8 tensors with two elements each.
fn write_file(folder: &Path, file: &str, tensors: &[&str]) {
    let specs: Vec<_> = tensors.iter().map(|name| TensorSpec::new(*name, DType::U8, [2])).collect();
    let mut writer = SafetensorsWriter::create(&folder.join(file), &specs).unwrap();
    for (i, name) in tensors.iter().enumerate() {
        writer.write(name, &[i as u8, 9]).unwrap();
    }
    writer.finish().unwrap();
}

fn write_index(folder: &Path, map: &[(&str, &str)]) {
    let map: std::collections::BTreeMap<_, _> = map.iter().copied().collect();
    let index = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

fn load(folder: &Path) -> Result<Checkpoint, WeightsError> {
    Checkpoint::load(&ModelFiles::open(folder).unwrap())
}

fn names(folder: &Path) -> Vec<String> {
    load(folder).unwrap().names().map(str::to_owned).collect()
}

fn problems(folder: &Path) -> Vec<Problem> {
    match load(folder) {
        Err(WeightsError::Invalid { problems, .. }) => problems,
        other => panic!("expected faults, got {other:?}"),
    }
}

#[test]
fn without_an_index_model_files_and_sidecars_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    write_file(f, "model.safetensors", &["a"]);
    write_file(f, "model-head.safetensors", &["b"]);
    write_file(f, "mtp.safetensors", &["c"]);
    write_file(f, "ngram-table.safetensors", &["d"]);
    // Golden values and copies in another layout must not be taken for weights.
    write_file(f, "golden.safetensors", &["a"]);
    write_file(f, "consolidated.safetensors", &["a"]);
    assert_eq!(names(f), ["a", "b", "c", "d"]);
}

#[test]
fn with_an_index_only_its_files_and_sidecars_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    write_file(f, "part-1.safetensors", &["a", "not_in_the_index"]);
    write_file(f, "model-old.safetensors", &["a"]);
    write_file(f, "mtp.safetensors", &["m"]);
    write_index(f, &[("a", "part-1.safetensors")]);
    assert_eq!(names(f), ["a", "m", "not_in_the_index"]);
}

#[test]
fn an_index_that_does_not_fit_its_files_lists_every_fault() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    write_file(f, "one.safetensors", &["a"]);
    let (one, two) = ("one.safetensors", "two.safetensors");
    write_index(f, &[("a", one), ("b", one), ("c", one), ("d", two), ("e", two)]);
    let not_in = |tensor: &str| Problem {
        file: one.to_owned(),
        kind: ProblemKind::NotInFile { tensor: tensor.to_owned() },
    };
    let missing = Problem { file: two.to_owned(), kind: ProblemKind::FileMissing { tensors: 2 } };
    assert_eq!(problems(f), [not_in("b"), not_in("c"), missing]);
    let text = load(f).unwrap_err().to_string();
    assert!(text.contains("3 faults") && text.contains("two.safetensors: is named by the index"), "{text}");
}

#[test]
fn an_index_must_be_json_and_stay_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    for name in ["../model.safetensors", "/etc/x.safetensors", "..\\m.safetensors", "model.bin"] {
        write_index(f, &[("a", name)]);
        assert!(matches!(problems(f)[0].kind, ProblemKind::BadIndex { .. }), "{name}");
    }
    for text in ["", "[]", "{}", r#"{"weight_map":{"a":1}}"#] {
        fs::write(f.join("model.safetensors.index.json"), text).unwrap();
        assert!(matches!(problems(f)[0].kind, ProblemKind::BadIndex { .. }), "{text}");
    }
}

#[test]
fn a_tensor_in_two_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    write_file(f, "model-1.safetensors", &["a"]);
    write_file(f, "model-2.safetensors", &["a", "b"]);
    let kind =
        ProblemKind::DuplicateAcrossFiles { tensor: "a".to_owned(), other: "model-1.safetensors".to_owned() };
    assert_eq!(problems(f), [Problem { file: "model-2.safetensors".to_owned(), kind }]);
}

#[test]
fn a_truncated_file_names_every_tensor_that_lost_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    write_file(folder.path(), "model.safetensors", &["a", "b", "c"]);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let found: Vec<String> = problems(folder.path()).iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("model.safetensors: tensor `b`"), "{found:?}");
    fs::write(&path, b"").unwrap();
    assert_eq!(problems(folder.path())[0].kind, ProblemKind::TooShort { bytes: 0 });
}

#[test]
fn an_unsupported_type_is_an_error_only_for_who_asks() {
    let folder = tempfile::tempdir().unwrap();
    let header = r#"{"x":{"dtype":"F8_E5M2","shape":[3],"data_offsets":[0,3]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&[1, 2, 3]);
    fs::write(folder.path().join("model.safetensors"), file).unwrap();

    let checkpoint = load(folder.path()).unwrap();
    assert_eq!(checkpoint.names().count(), 0);
    assert_eq!(checkpoint.total_bytes(), 3);
    let listed: Vec<_> =
        checkpoint.unsupported().map(|t| (t.name.as_str(), t.dtype.as_str(), t.bytes)).collect();
    assert_eq!(listed, [("x", "F8_E5M2", 3)]);
    assert!(checkpoint.get("x").is_none());
    assert!(matches!(checkpoint.require("x"), Err(WeightsError::UnsupportedDType { .. })));
    assert!(matches!(checkpoint.require("y"), Err(WeightsError::MissingTensor { .. })));
}

#[test]
fn folders_without_weights_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    assert!(matches!(load(f), Err(WeightsError::NoWeightFiles { .. })));
    write_file(f, "mtp.safetensors", &["m"]);
    assert!(matches!(load(f), Err(WeightsError::NoWeightFiles { .. })), "a draft head alone is no model");
    assert!(matches!(ModelFiles::open(&f.join("no")), Err(WeightsError::NotAFolder { .. })));
    assert!(matches!(ModelFiles::open(&f.join("mtp.safetensors")), Err(WeightsError::NotAFolder { .. })));
    let files = ModelFiles::open(f).unwrap();
    assert_eq!(files.read("config.json").unwrap(), None);
    fs::create_dir(f.join("config.json")).unwrap();
    assert!(matches!(files.read("config.json"), Err(WeightsError::Read { .. })));
    assert!(matches!(Checkpoint::load_file(&f.join("no.safetensors")), Err(WeightsError::Read { .. })));
}

#[test]
fn misaligned_data_is_read_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let header = r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   "#;
    assert_eq!(header.len() % 2, 1, "nothing after a header of odd length is aligned");
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(bytemuck::cast_slice(&[1.5f32, -2.0]));
    fs::write(folder.path().join("model.safetensors"), &file).unwrap();
    let from_folder = load(folder.path()).unwrap();

    let contents: &'static [u8] = Vec::leak(file);
    let files = Vec::leak(vec![("model.safetensors", contents)]);
    let embedded = ModelFiles::embedded("demo", files);
    let from_program = Checkpoint::load(&embedded).unwrap();
    assert_eq!(embedded.name(), "demo");
    assert_eq!(embedded.read("model.safetensors").unwrap().as_deref(), Some(contents));

    for checkpoint in [from_folder, from_program] {
        assert_eq!(checkpoint.get("x").unwrap().floats().unwrap().to_f32(), [1.5, -2.0]);
    }
}

#[test]
fn rows_are_views_and_random_ones_are_not_loaded_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let specs = [TensorSpec::new("table", DType::BF16, [5, 3]), TensorSpec::new("small", DType::I64, [1])];
    let path = folder.path().join("model.safetensors");
    let mut writer = SafetensorsWriter::create(&path, &specs).unwrap();
    let bytes: Vec<u8> = (0..30).collect();
    writer.write("table", &bytes).unwrap();
    writer.write("small", &7i64.to_le_bytes()).unwrap();
    writer.finish().unwrap();

    let checkpoint = load(folder.path()).unwrap();
    let table = checkpoint.get("table").unwrap();
    table.advise_random();
    assert_eq!(table.row(4), &bytes[24..30]);
    assert!(std::ptr::eq(table.row(0).as_ptr(), table.bytes.as_ref().as_ptr()));
    assert_eq!(checkpoint.get("small").unwrap().i64s(), Some(&[7i64][..]));
    let seen = std::cell::RefCell::new(Vec::new());
    checkpoint.prefetch(&|done, total| seen.borrow_mut().push((done, total)));
    assert_eq!(seen.into_inner(), [(8, 8)]);
}

#[test]
fn released_bytes_stay_readable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let data: Vec<f32> = (0..10_000).map(|i| i as f32).collect();
    let mut writer =
        SafetensorsWriter::create(&path, &[TensorSpec::new("x", DType::F32, [data.len()])]).unwrap();
    writer.write_f32("x", &data).unwrap();
    writer.finish().unwrap();
    let checkpoint = load(folder.path()).unwrap();
    checkpoint.prefetch(&|_, _| {});
    let tensor = checkpoint.get("x").unwrap();
    tensor.bytes.release();
    assert_eq!(tensor.floats().unwrap().to_f32(), data);
}
