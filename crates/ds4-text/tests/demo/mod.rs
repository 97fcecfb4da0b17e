//! The text sides of the bundled demo checkpoints, for all tests of this crate.
#![allow(dead_code, reason = "every test file compiles this module for itself and uses a part of it")]

use std::path::PathBuf;
use std::sync::LazyLock;

use ds4_text::{ChatFamily, TextModel, TextSources};

fn read(family: &str, name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../demo").join(family).join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The default demo checkpoint, loaded once a process.
pub(crate) fn text_model() -> &'static TextModel {
    static MODEL: LazyLock<TextModel> = LazyLock::new(|| load("qwen4_exp"));
    &MODEL
}

/// The demo checkpoint of a family.
pub(crate) fn load(family: &str) -> TextModel {
    let read = |name| read(family, name);
    let template = String::from_utf8(read("chat_template.jinja")).expect("the template is UTF-8");
    TextModel::load(&TextSources {
        tokenizer_json: &read("tokenizer.json"),
        tokenizer_config: Some(&read("tokenizer_config.json")),
        chat_template: Some(&template),
        generation_config: Some(&read("generation_config.json")),
        config_eos: &[0],
        family: ChatFamily::from_model_type(family).expect("folders are named by model type"),
        context: 4096,
    })
    .expect("the demo checkpoint loads")
}

/// A checkpoint of `family` without a template: the demo's tokenizer with the family's markers added.
pub(crate) fn without_template(family: ChatFamily, context: usize) -> TextModel {
    let mut tokenizer: serde_json::Value =
        serde_json::from_slice(&read("qwen4_exp", "tokenizer.json")).expect("the tokenizer is JSON");
    let markers = [
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "｜DSML｜",
        "[gMASK]",
        "<sop>",
        "<|system|>",
        "<|user|>",
        "<|assistant|>",
        "<|observation|>",
    ];
    let added = tokenizer["added_tokens"].as_array_mut().expect("there are added tokens");
    for (id, content) in (4096..).zip(markers) {
        added.push(serde_json::json!({"id": id, "content": content, "single_word": false, "lstrip": false,
                                      "rstrip": false, "normalized": false, "special": true}));
    }
    // The end of an answer: of a turn, of a sentence, or the marker of the next turn.
    let stop_tokens: &[u32] = match family {
        ChatFamily::Qwen => &[2],
        ChatFamily::DeepSeek => &[4097],
        ChatFamily::Glm => &[4104, 4106],
    };
    TextModel::load(&TextSources {
        tokenizer_json: tokenizer.to_string().as_bytes(),
        tokenizer_config: None,
        chat_template: None,
        generation_config: None,
        config_eos: stop_tokens,
        family,
        context,
    })
    .expect("the checkpoint loads")
}
