//! A window that is taken back leaves no trace: the state is, bit for bit, what it would be had only the kept rows run.
#![allow(clippy::unwrap_used, reason = "tests only")]

mod common;

use common::{folder, ids, load, logits};
use ds4_models::{CausalLm, SequenceCache};

/// Golden checkpoints with different mixes of layers; in the long ones attention selects blocks.
const MODELS: &[&str] = &[
    "golden/qwen4_exp/base",
    "golden/qwen4_exp/odd_dimensions",
    "golden/qwen4_exp/linear_only",
    "golden/qwen4_exp/attention_only",
    "golden/qwen4_exp/long_crossing",
    "demo/qwen4_exp",
    "golden/deepseek_v4/base",
    "golden/deepseek_v4/pair_2_8",
    "golden/deepseek_v4/released_rates",
    "golden/deepseek_v4/long_windows",
    "golden/deepseek_v4/sliding_only",
    "golden/deepseek_v4/fp8_fp4_powers",
    "demo/deepseek_v4",
    "golden/glm5_next/base",
    "golden/glm5_next/shared_indexer",
    "golden/glm5_next/single_tokens",
    "golden/glm5_next/odd_dimensions",
    "golden/glm5_next/long_crossing",
    "golden/glm5_next/long_sparse",
    "demo/glm5_next",
];

fn state(cache: &SequenceCache) -> Vec<(String, Vec<u8>)> {
    let bytes = |array: &ds4_array::Array| array.read_bytes(<[u8]>::to_vec).unwrap();
    cache.state().iter().map(|(name, array)| (name.clone(), bytes(array))).collect()
}

/// The parts of a state whose every byte counts: pages may hold what was taken back behind their last row.
fn fixed(cache: &SequenceCache) -> Vec<(String, Vec<u8>)> {
    let paged = |name: &str| name.rsplit('.').next().is_some_and(|last| last.parse::<usize>().is_ok());
    state(cache).into_iter().filter(|(name, _)| !paged(name)).collect()
}

/// Names of parts that are not the same in both.
fn differing(a: &[(String, Vec<u8>)], b: &[(String, Vec<u8>)]) -> Vec<String> {
    let all = a.iter().chain(b).map(|(name, _)| name);
    let part = |state: &[(String, Vec<u8>)], name: &str| {
        state.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
    };
    let mut names: Vec<String> = all.filter(|name| part(a, name) != part(b, name)).cloned().collect();
    names.sort();
    names.dedup();
    names
}

fn check(model: &dyn CausalLm, tokens: &[u32], before: usize, window: usize) {
    for keep in 0..=window {
        let mut cache = model.new_cache();
        logits(model, &mut cache, &tokens[..before]);
        let mut plain = cache.clone();
        cache.begin_window();
        logits(model, &mut cache, &tokens[before..before + window]);
        cache.commit_window(keep).unwrap();
        if keep > 0 {
            logits(model, &mut plain, &tokens[before..before + keep]);
        }
        assert_eq!(cache.tokens(), plain.tokens());
        let case = format!("{keep} of {window} kept after {before}");
        assert_eq!(differing(&fixed(&cache), &fixed(&plain)), Vec::<String>::new(), "{case}");
        let rest = &tokens[before + keep..(before + keep + 9).min(tokens.len())];
        assert!(
            logits(model, &mut cache, rest) == logits(model, &mut plain, rest),
            "{case}: other logits follow"
        );
    }
}

#[test]
fn any_prefix_of_a_window_can_be_kept() {
    for name in MODELS {
        let loaded = load(name);
        let tokens = ids(&format!("{name}/golden.safetensors"), "ids");
        assert!(folder(name).exists() && tokens.len() > 60, "{name}");
        for (before, window) in [(1, 4), (30, 1), (41, 6), (tokens.len() - 9, 8)] {
            check(&*loaded.model, &tokens, before, window);
        }
    }
}

#[test]
fn a_state_goes_out_and_comes_back_in() {
    for name in MODELS {
        let loaded = load(name);
        let tokens = ids(&format!("{name}/golden.safetensors"), "ids");
        let mut cache = loaded.model.new_cache();
        logits(&*loaded.model, &mut cache, &tokens[..50]);
        let parts = cache.state();
        let mut restored = loaded.model.new_cache();
        let mut source =
            |wanted: &str| parts.iter().find(|(name, _)| name == wanted).map(|(_, array)| array.clone());
        restored.restore(50, &mut source).unwrap();
        let rest = &tokens[50..60];
        assert!(
            logits(&*loaded.model, &mut restored, rest) == logits(&*loaded.model, &mut cache, rest),
            "{name}"
        );
        let missing = loaded.model.new_cache().restore(50, &mut |_| None).unwrap_err();
        assert!(missing.to_string().starts_with("the saved state has no part"), "{missing}");
    }
}
