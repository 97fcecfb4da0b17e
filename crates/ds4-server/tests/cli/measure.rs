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
fn requests_at_a_time_are_counted_together() {
    let sandbox = Sandbox::new();
    let parallel = [&SHORT[..], &["--parallel", "3"]].concat();
    let page = sandbox.run(&parallel).succeeded().stdout;
    assert!(page.contains("3 answers and their prompts"), "{page}");
    let ran = sandbox.run(&[&parallel[..], &["--json"]].concat()).succeeded();
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(value["parallel"], 3);
    assert!(value["together_tokens_per_second"]["median"].as_f64().unwrap() > 0.0);
    assert!(value["decode_bytes_per_second"].is_null(), "nobody knows what is shared");
}

#[test]
fn more_than_the_context_is_refused() {
    let error = Sandbox::new().run(&["bench", "--prompt", "4096"]).failed_with(2);
    assert!(error.contains("are 4224 tokens together, the context has 4096"), "{error}");
}

#[test]
fn parts_are_measured_without_the_engine() {
    let arguments = ["bench", "--parts", "verify,batch,memory,loaded", "--repeat", "1", "--json"];
    let ran = Sandbox::new().run(&arguments).succeeded();
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    for figure in
        ["decode_tps", "verify4_ratio", "batch8_ratio", "loaded_ratio", "bandwidth_gbps", "fma_gflops"]
    {
        assert!(value[figure].as_f64().unwrap() > 0.0, "{figure}: {value}");
    }
    // Reading prompts was not asked for, and the demo model's context ends before 16384.
    assert!(value["prefill_tps"].is_null() && value["decode_16k_ratio"].is_null());
    let measures = value["measures"].as_array().unwrap();
    let kinds: Vec<&str> = measures.iter().map(|measure| measure["measure"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["verify", "verify", "verify", "batch", "batch", "batch", "batch", "decode"]);
    // Eight sequences share what one reads, apart from experts and caches of their own.
    let bytes = |place: usize| measures[place]["bytes_per_token"].as_f64().unwrap();
    assert!(bytes(3) > bytes(6) && bytes(6) > bytes(3) / 8.0, "{measures:?}");
}

#[test]
fn a_profile_lists_primitives() {
    let page = Sandbox::new().run(&["bench", "--profile"]).succeeded().stdout;
    for name in [
        "decode at 64: ",
        "verify 4 rows: ",
        "decode 8 at once: ",
        "prefill 512: ",
        "Linear [",
        "GatedDelta [",
        "between primitives",
    ] {
        assert!(page.contains(name), "{name}: {page}");
    }
}

#[test]
fn an_unknown_random_model_is_refused_with_the_known_ones() {
    let error = Sandbox::new().run(&["bench", "--random", "llama:mid"]).failed_with(2);
    assert!(error.contains("there are qwen4_exp:mid, deepseek_v4:mid, glm5_next:mid"), "{error}");
}
