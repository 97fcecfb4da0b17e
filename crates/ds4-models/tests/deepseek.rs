//! What DeepSeek's caches can take back by themselves, and what is said of a checkpoint.

mod common;

use common::{folder, ids, load, logits};
use ds4_weights::ModelFiles;

#[test]
fn a_trimmed_cache_goes_on_like_a_shorter_one_or_says_that_it_cannot() {
    // Of each checkpoint the lengths, of 63 tokens, that can be gone back to.
    for (name, least) in [("sliding_only", 62), ("base", 5), ("released_rates", 5)] {
        let path = format!("golden/deepseek_v4/{name}");
        let model = load(&path).model;
        let tokens = ids(&format!("{path}/golden.safetensors"), "ids");
        let mut whole = model.new_cache();
        logits(&*model, &mut whole, &tokens[..63]);
        let mut possible = 0;
        for to in 0..=63 {
            let mut cache = whole.clone();
            match cache.trim(to) {
                Ok(()) => possible += 1,
                Err(error) => {
                    assert!(error.to_string().contains("cannot be trimmed"), "{error}");
                    assert_eq!(cache.tokens(), 63, "a refusal changes nothing");
                    continue;
                }
            }
            let mut shorter = model.new_cache();
            if to > 0 {
                logits(&*model, &mut shorter, &tokens[..to]);
            }
            let next = &tokens[to..to + 7];
            assert!(
                logits(&*model, &mut cache, next) == logits(&*model, &mut shorter, next),
                "{name} to {to}"
            );
        }
        assert!(possible >= least, "{name}: only {possible} lengths");
    }
}

#[test]
fn a_description_says_what_the_checkpoint_has_and_lacks() {
    let describe = |name: &str| {
        ds4_models::describe(&ModelFiles::open(&folder(&format!("golden/deepseek_v4/{name}"))).unwrap())
            .unwrap()
    };
    let released = describe("released_layout");
    assert_eq!(released.problems, Vec::<String>::new());
    let skipped: Vec<String> = released.skipped.iter().map(ToString::to_string).collect();
    assert_eq!(skipped, ["1 tensor of the draft head is skipped: no speculative decoding with it"]);
    assert_eq!(released.remarks, Vec::<String>::new());
    let layers: Vec<(&str, usize)> = released.layers.iter().map(|l| (l.kind.as_str(), l.count)).collect();
    assert_eq!(
        layers[..3],
        [
            ("sliding-window attention", 2),
            ("compressed sparse attention", 2),
            ("heavily compressed attention", 1)
        ]
    );
    let packed = describe("fp8_fp4_powers");
    assert_eq!(packed.problems, Vec::<String>::new());
    let loaded = load("golden/deepseek_v4/fp8_fp4_powers");
    assert_eq!(packed.parameters, loaded.parameters);
    // A token visits two of four experts, so it reads less than the file.
    assert!(loaded.bytes_per_token < loaded.weight_bytes);
    assert_eq!(describe("base").parameters, describe("released_layout").parameters);
}
