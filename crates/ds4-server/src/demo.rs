//! The demo model, part of the program: 16 MB that make every command work with nothing downloaded. It is loaded through
//! the same path as a checkpoint folder.

use ds4_weights::ModelFiles;

/// What the demo model is called on the command line and by clients.
pub(crate) const NAME: &str = "demo";

/// Tensors are used in place, which needs aligned files.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$({
            static FILE: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!("../../../demo/qwen4_exp/", $name)));
            ($name, &FILE.0)
        }),*]
    };
}

static FILES: &[(&str, &[u8])] = embedded![
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
];

/// The demo model's files.
pub(crate) fn files() -> ModelFiles {
    ModelFiles::embedded(NAME, FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_can_be_used_in_place() {
        for (name, contents) in FILES {
            assert_eq!(contents.as_ptr().align_offset(64), 0, "{name}");
        }
    }
}
