//! GLM 5.3 Flash: the bundled demo model against its golden file, and what a checkpoint of the family is told to be.

mod common;

use common::{folder, ids, load, logits};
use ds4_models::{BatchSegment, LogitRows};
use ds4_testkit::comparison::assert_close;
use ds4_testkit::golden::Golden;
use ds4_testkit::tolerance;
use ds4_weights::ModelFiles;

const DEMO: &str = "demo/glm5_next";

#[test]
fn the_demo_model_computes_the_golden_logits_however_the_prompt_is_cut() {
    let loaded = load(DEMO);
    let golden = Golden::load(&folder(DEMO)).unwrap();
    let limit = tolerance::logits(golden.storage().unwrap());
    let whole = logits(&*loaded.model, &mut loaded.model.new_cache(), &golden.ids);
    assert_close(&golden.logits.values, &whole, limit);
    assert_close(&golden.decode_logits.values, &whole, limit);
    for chunk in [1, 4, 64] {
        let mut cache = loaded.model.new_cache();
        let parts = golden.ids.chunks(chunk);
        let cut: Vec<f32> = parts.flat_map(|tokens| logits(&*loaded.model, &mut cache, tokens)).collect();
        assert!(cut == whole, "chunks of {chunk}");
    }
}

#[test]
fn sequences_of_a_batch_do_not_see_each_other() {
    // In this checkpoint layers use the selection of the layer before them, which is kept by segment.
    let name = "golden/glm5_next/shared_indexer";
    let loaded = load(name);
    let tokens = ids(&format!("{name}/golden.safetensors"), "ids");
    let alone = logits(&*loaded.model, &mut loaded.model.new_cache(), &tokens);
    let (mut first, mut second) = (loaded.model.new_cache(), loaded.model.new_cache());
    logits(&*loaded.model, &mut first, &tokens[..40]);
    let mut batch = [
        BatchSegment { tokens: &tokens[40..], cache: &mut first, logits: LogitRows::All },
        BatchSegment { tokens: &tokens[..30], cache: &mut second, logits: LogitRows::All },
    ];
    let both = loaded.model.forward(&mut batch).unwrap().logits.unwrap().to_vec::<f32>().unwrap();
    let width = loaded.model.vocabulary();
    assert!(both[..(tokens.len() - 40) * width] == alone[40 * width..]);
    assert!(both[(tokens.len() - 40) * width..] == alone[..30 * width]);
}

#[test]
fn trimming_is_refused_by_recurrent_layers_and_done_by_others() {
    let linear = load(DEMO).model;
    let mut cache = linear.new_cache();
    logits(&*linear, &mut cache, &[1, 2, 3]);
    assert!(cache.trim(2).unwrap_err().to_string().starts_with("a delta cache cannot be trimmed"));

    let name = "golden/glm5_next/single_tokens";
    let attention = load(name).model;
    let tokens = ids(&format!("{name}/golden.safetensors"), "ids");
    let whole = logits(&*attention, &mut attention.new_cache(), &tokens);
    let mut cache = attention.new_cache();
    logits(&*attention, &mut cache, &tokens[..50]);
    cache.trim(20).unwrap();
    let rest = logits(&*attention, &mut cache, &tokens[20..]);
    assert!(rest == whole[20 * attention.vocabulary()..]);
}

#[test]
fn a_description_counts_layers_and_says_what_is_left_out() {
    let files = ModelFiles::open(&folder("golden/glm5_next/released_layout")).unwrap();
    let description = ds4_models::describe(&files).unwrap();
    assert_eq!(description.problems, Vec::<String>::new());
    let layers: Vec<(&str, usize)> =
        description.layers.iter().map(|layer| (layer.kind.as_str(), layer.count)).collect();
    let expected = [
        ("Kimi delta attention", 4),
        ("latent attention", 1),
        ("mixture of experts", 4),
        ("dense network", 1),
    ];
    assert_eq!(layers, expected);
    let skipped: Vec<String> = description.skipped.iter().map(ToString::to_string).collect();
    let expected = [
        "1 tensor of the vision tower is skipped: pictures are not supported",
        "1 tensor of the draft head is skipped: no speculative decoding with it",
    ];
    assert_eq!(skipped, expected);

    let loaded = load("golden/glm5_next/released_layout");
    assert_eq!(loaded.skipped, description.skipped);
    assert_eq!(loaded.parameters, description.parameters);
    // Three of seven experts are read, and one row of the embedding.
    assert!(loaded.bytes_per_token < loaded.weight_bytes * 9 / 10, "{}", loaded.bytes_per_token);
    assert!(loaded.bytes_per_token > loaded.weight_bytes / 2, "{}", loaded.bytes_per_token);
}
