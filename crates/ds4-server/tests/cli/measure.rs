//! `bench`: its figures are there and fit together. How large they are is no matter of a test.

use crate::sandbox::Sandbox;

const SHORT: [&str; 7] = ["bench", "--prompt", "16", "--gen", "4", "--repeat", "2"];

#[test]
fn figures_fit_together() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&[&SHORT[..], &["--json"]].concat()).succeeded();
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    for speed in ["prefill_tokens_per_second", "decode_tokens_per_second"] {
        let figure = |name: &str| value[speed][name].as_f64().unwrap();
        assert!(
            0.0 < figure("min") && figure("min") <= figure("median") && figure("median") <= figure("max")
        );
    }
    // All but the draft head, three quarters of the experts and the embedding: more than a half, less than all.
    let bytes = value["weight_bytes_per_token"].as_u64().unwrap();
    assert!((8_000_000..12_000_000).contains(&bytes), "{bytes}");
    assert!(value["read_bytes_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn people_get_a_page() {
    let page = Sandbox::new().run(&SHORT).succeeded().stdout;
    for name in ["prefill  ", "decode  ", "weights read  ", "memory reads  "] {
        assert!(page.lines().any(|line| line.starts_with(name)), "{name}: {page}");
    }
}

#[test]
fn more_than_the_context_is_refused() {
    let error = Sandbox::new().run(&["bench", "--prompt", "4096"]).failed_with(2);
    assert!(error.contains("are 4224 tokens together, the context has 4096"), "{error}");
}
