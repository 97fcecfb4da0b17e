//! `inspect`: the page for people, and the same as JSON.

use crate::sandbox::Sandbox;

#[test]
fn the_demo_model_is_described() {
    insta::assert_snapshot!(Sandbox::new().run(&["inspect"]).succeeded().stdout);
}

#[test]
fn a_folder_of_the_same_files_is_described_alike() {
    let sandbox = Sandbox::new();
    sandbox.demo_copy("model");
    let folder = sandbox.run(&["inspect", "model", "--context", "100"]).succeeded().stdout;
    assert_eq!(folder, sandbox.run(&["inspect", "--context", "100"]).succeeded().stdout);
    assert!(folder.contains("for caches at 100 tokens"), "{folder}");
}

#[test]
fn json_has_the_figures() {
    let ran = Sandbox::new().run(&["inspect", "--json"]).succeeded();
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(value["model_type"], "qwen4_exp");
    assert_eq!(value["max_context"], 4096);
    assert!(value["parameters"].as_u64().unwrap() > 8_000_000);
    assert_eq!(value["problems"], serde_json::json!([]));
}
