//! What the writers write, the loader reads; what is not whole, nobody sees.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails by panicking, as the test does")]

use std::fs;

use ds4_dtype::DType;
use ds4_weights::{
    Checkpoint, ModelFiles, SafetensorsWriter, ShardWriter, TensorSpec, WriteError, parse_header,
};
use proptest::prelude::*;

const DTYPES: [DType; 7] =
    [DType::F32, DType::F16, DType::BF16, DType::U8, DType::U32, DType::I32, DType::I64];

/// A tensor and its data.
fn tensor() -> impl Strategy<Value = (TensorSpec, Vec<u8>)> {
    let name = "[a-z.\"\\\\ \u{e4}\u{1f600}]{1,12}";
    let shape = prop::collection::vec(0usize..5, 0..4);
    (name, prop::sample::select(&DTYPES[..]), shape).prop_flat_map(|(name, dtype, shape)| {
        let bytes = shape.iter().product::<usize>() * dtype.size();
        let spec = TensorSpec::new(name, dtype, shape);
        (Just(spec), prop::collection::vec(any::<u8>(), bytes))
    })
}

/// Tensors of different names.
fn tensors() -> impl Strategy<Value = Vec<(TensorSpec, Vec<u8>)>> {
    prop::collection::vec(tensor(), 1..12).prop_map(|mut tensors| {
        tensors.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        tensors.dedup_by(|a, b| a.0.name == b.0.name);
        tensors
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn written_tensors_come_back(tensors in tensors(), max_shard in 1u64..300, piece in 1usize..40) {
        let folder = tempfile::tempdir().unwrap();
        let specs: Vec<_> = tensors.iter().map(|(spec, _)| spec.clone()).collect();
        let mut writer = ShardWriter::create(folder.path(), &specs, max_shard).unwrap();
        // In pieces, and the last tensor first.
        for (spec, data) in tensors.iter().rev() {
            for part in data.chunks(piece) {
                writer.write(&spec.name, part).unwrap();
            }
        }
        let written = writer.finish().unwrap();
        let checkpoint = Checkpoint::load(&ModelFiles::open(folder.path()).unwrap()).unwrap();
        prop_assert_eq!(checkpoint.names().count(), tensors.len());
        prop_assert_eq!(checkpoint.total_bytes(), written.bytes);
        for (spec, data) in &tensors {
            let found = checkpoint.require(&spec.name).unwrap();
            prop_assert_eq!((found.dtype, &found.shape), (spec.dtype, &spec.shape));
            prop_assert_eq!(found.bytes.as_ref(), &data[..]);
        }
        prop_assert!(fs::read_dir(folder.path()).unwrap().count() == written.files.len() + usize::from(written.files.len() > 1));
    }

    /// Damage is found or harmless: no panic, and no tensor reaches outside the file.
    #[test]
    fn damaged_files_never_reach_outside(
        tensors in tensors(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let specs: Vec<_> = tensors.iter().map(|(spec, _)| spec.clone()).collect();
        let path = folder.path().join("model.safetensors");
        let mut writer = SafetensorsWriter::create(&path, &specs).unwrap();
        for (spec, data) in &tensors {
            writer.write(&spec.name, data).unwrap();
        }
        writer.finish().unwrap();
        let mut file = fs::read(&path).unwrap();
        for (position, value) in flips {
            let at = position.index(file.len());
            file[at] = value;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        if let Ok(header) = parse_header(&file) {
            for entry in &header.entries {
                prop_assert!(file.get(entry.range.clone()).is_some());
            }
        }
        fs::write(&path, &file).unwrap();
        if let Ok(checkpoint) = Checkpoint::load_file(&path) {
            for tensor in checkpoint.tensors() {
                prop_assert_eq!(tensor.bytes.as_ref().len(), tensor.len() * tensor.dtype.size());
            }
        }
    }
}

#[test]
fn shards_are_filled_up_to_their_limit() {
    let folder = tempfile::tempdir().unwrap();
    let specs: Vec<_> = ["a", "b", "c", "d"].map(|name| TensorSpec::new(name, DType::U8, [10])).into();
    let mut writer = ShardWriter::create(folder.path(), &specs, 20).unwrap();
    specs.iter().for_each(|spec| writer.write(&spec.name, &[0; 10]).unwrap());
    let written = writer.finish().unwrap();
    assert_eq!(written.files, ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]);
    let index = fs::read_to_string(folder.path().join("model.safetensors.index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    assert_eq!(index["weight_map"]["c"], "model-00002-of-00002.safetensors");
    assert_eq!(index["metadata"]["total_size"], 40);
}

#[test]
fn an_unfinished_file_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logits.safetensors");
    let count = || fs::read_dir(folder.path()).unwrap().count();
    let specs = [TensorSpec::new("logits", DType::F32, [2, 2])];

    let mut writer = SafetensorsWriter::create(&path, &specs).unwrap();
    writer.write_f32("logits", &[1.0, 2.0]).unwrap();
    assert!(!path.exists() && count() == 1);
    let error = writer.finish().unwrap_err();
    assert!(matches!(error, WriteError::Incomplete { expected: 16, given: 8, .. }), "{error}");
    assert_eq!(count(), 0);

    let mut writer = SafetensorsWriter::create(&path, &specs).unwrap();
    writer.write_f32("logits", &[1.0, 2.0]).unwrap();
    writer.write_f32("logits", &[3.0, 4.0]).unwrap();
    writer.finish().unwrap();
    let file = Checkpoint::load_file(&path).unwrap();
    assert_eq!(file.get("logits").unwrap().floats().unwrap().to_f32(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(count(), 1);
}

#[test]
fn misuse_of_a_writer_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let twice = [TensorSpec::new("a", DType::U8, [1]), TensorSpec::new("a", DType::U8, [1])];
    let create = SafetensorsWriter::create(&path, &twice);
    assert!(matches!(create, Err(WriteError::DuplicateName { .. })));
    let huge = [TensorSpec::new("a", DType::F32, [usize::MAX, 2])];
    assert!(matches!(SafetensorsWriter::create(&path, &huge), Err(WriteError::ShapeOverflow { .. })));
    let nowhere = folder.path().join("no/x.safetensors");
    assert!(matches!(SafetensorsWriter::create(&nowhere, &[]), Err(WriteError::Io { .. })));

    let mut writer = SafetensorsWriter::create(&path, &twice[..1]).unwrap();
    assert!(matches!(writer.write("b", &[1]), Err(WriteError::UnknownTensor { .. })));
    assert!(matches!(writer.write("a", &[1, 2]), Err(WriteError::TooMuchData { expected: 1, given: 2, .. })));
    assert!(matches!(writer.write_f32("a", &[]), Err(WriteError::WrongType { .. })));
}
