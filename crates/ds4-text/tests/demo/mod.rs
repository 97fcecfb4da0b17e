//! The text sides of the bundled demo checkpoints, for all tests of this crate.

use std::path::PathBuf;
use std::sync::LazyLock;

use ds4_text::{TextModel, TextSources};

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
    })
    .expect("the demo checkpoint loads")
}
