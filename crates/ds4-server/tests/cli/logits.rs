//! `logits`: the file, against the golden logits of the demo model, which transformers computed (see golden/README.md).

use std::path::Path;

use ds4_testkit::comparison::assert_close;
use ds4_testkit::tolerance::{self, WeightStorage};
use ds4_weights::Checkpoint;

use crate::sandbox::{Sandbox, demo_folder};

/// Ids, and the logits [T, V] that belong to them.
fn golden() -> (String, Vec<f32>) {
    let file = Checkpoint::load_file(&demo_folder().join("golden.safetensors")).unwrap();
    let ids = file.require("ids").unwrap().bytes.as_ref().to_vec();
    let ids: Vec<String> =
        ids.chunks(4).map(|id| i32::from_le_bytes(id.try_into().unwrap()).to_string()).collect();
    (ids.join(","), file.require("logits").unwrap().floats().unwrap().to_f32())
}

fn logits(file: &Path, tokens: usize) -> Vec<f32> {
    let file = Checkpoint::load_file(file).unwrap();
    let tensor = file.require("logits").unwrap();
    assert_eq!(tensor.shape, [tokens, 4096]);
    tensor.floats().unwrap().to_f32()
}

#[test]
fn every_way_to_compute_them_gives_the_golden_logits() {
    let sandbox = Sandbox::new();
    let (ids, expected) = golden();
    sandbox.write("ids.txt", &ids.replace(',', "\n"));
    let ways: [&[&str]; 4] = [&[], &["--chunk", "1"], &["--chunk", "17", "--threads", "1"], &["--reference"]];
    for way in ways {
        let tokens = if way.is_empty() { "@ids.txt" } else { ids.as_str() };
        let arguments: Vec<&str> =
            ["logits", "--tokens", tokens, "--out", "out.safetensors"].iter().chain(way).copied().collect();
        assert_eq!(sandbox.run(&arguments).succeeded().stdout, "");
        let actual = logits(&sandbox.path("out.safetensors"), expected.len() / 4096);
        assert_close(&expected, &actual, tolerance::logits(WeightStorage::Half));
    }
}

#[test]
fn tokens_that_the_model_does_not_have_are_refused() {
    let sandbox = Sandbox::new();
    let run =
        |tokens| sandbox.run(&["logits", "--tokens", tokens, "--out", "out.safetensors"]).failed_with(2);
    assert!(run("1,4096").contains("4096 is outside of the vocabulary of 4096 tokens"));
    assert!(run("1,x").contains("\"x\" is no token id"));
    assert!(run("").contains("the list is empty"));
    assert!(run(&"1,".repeat(4097)).contains("4097 are more than the context of 4096 tokens"));
    assert!(!sandbox.path("out.safetensors").exists());
}
