//! The demo models, part of the program: small trained models of the three families that make every command work with
//! nothing downloaded. They are loaded through the same path as a checkpoint folder.

use ds4_weights::ModelFiles;

/// What the default demo model is called on the command line and by clients.
pub(crate) const NAME: &str = "demo";

/// Tensors are used in place, which needs aligned files.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

macro_rules! embedded {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$({
            static FILE: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!("../../../demo/", $folder, "/", $name)));
            ($name, &FILE.0)
        }),*]
    };
}

/// Name and contents.
type File = (&'static str, &'static [u8]);

static QWEN: &[File] = embedded!["qwen4_exp":
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
];

static DEEPSEEK: &[File] = embedded!["deepseek_v4":
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
];

static GLM: &[File] = embedded!["glm5_next":
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.safetensors.index.json",
    "model-00001-of-00001.safetensors",
];

/// A family's demo model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demo {
    /// Qwen3.8 Flash Next, the default.
    Qwen,
    /// DeepSeek V4 Flash.
    Deepseek,
    /// GLM 5.3 Flash.
    Glm,
}

impl Demo {
    const ALL: [Self; 3] = [Self::Qwen, Self::Deepseek, Self::Glm];

    /// The model of this name: `demo`, or `demo:` and a family.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "demo:qwen" => Some(Self::Qwen),
            _ => Self::ALL.into_iter().find(|demo| demo.name() == name),
        }
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Qwen => NAME,
            Self::Deepseek => "demo:deepseek",
            Self::Glm => "demo:glm",
        }
    }

    /// Its files.
    pub(crate) fn files(self) -> ModelFiles {
        ModelFiles::embedded(self.name(), self.embedded())
    }

    fn embedded(self) -> &'static [File] {
        match self {
            Self::Qwen => QWEN,
            Self::Deepseek => DEEPSEEK,
            Self::Glm => GLM,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_can_be_used_in_place() {
        for demo in Demo::ALL {
            for (name, contents) in demo.embedded() {
                assert_eq!(contents.as_ptr().align_offset(64), 0, "{name}");
            }
        }
    }

    #[test]
    fn every_demo_model_has_a_name_that_leads_to_it() {
        for demo in Demo::ALL {
            assert_eq!(Demo::from_name(demo.name()), Some(demo));
        }
        assert_eq!(Demo::from_name("demo:qwen"), Some(Demo::Qwen));
        assert_eq!(Demo::from_name("demo:llama"), None);
    }
}
