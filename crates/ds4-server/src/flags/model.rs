//! Which model, and how it is run.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ds4_array::{Activations, Cpu, DType, Device, Isa, Pool};

use super::range::at_least_one;
use crate::cores;
use crate::demo::{self, Demo};
use crate::{env_vars, output};

/// Flags of every command that runs a model.
#[derive(Args, Debug)]
pub(crate) struct ModelFlags {
    /// Folder of a Hugging Face checkpoint, or `demo`, `demo:deepseek`, `demo:glm`
    #[arg(long, value_name = "DIR|demo", default_value = demo::NAME, env = env_vars::MODEL, hide_env = true)]
    #[arg(help_heading = "Model")]
    pub(crate) model: ModelName,

    /// Most tokens of a conversation, prompts and answers together [default: what the model allows]
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model")]
    context: Option<usize>,

    /// Threads to compute with [default: all cores]
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model")]
    threads: Option<usize>,

    /// Keep each thread but the first on a core of its own, as far as there are cores: steadier on a machine that does nothing
    /// else, slower beside other programs
    #[arg(long, help_heading = "Model")]
    pin: bool,

    /// Number format of cached keys and values; the half-size ones save memory and lose a little precision
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = CacheType::F32, help_heading = "Model")]
    kv: CacheType,

    /// Precision of activations in products with 4- and 8-bit weights; int8 is two to three times as fast there and off by
    /// less than the weights' own rounding. Other weights are not affected [default: int8, f32 for logits]
    #[arg(long, value_enum, value_name = "TYPE", help_heading = "Model")]
    cpu_activations: Option<ActivationType>,

    /// Instruction set of the kernels: avx512, avx2, neon or scalar [default: the best that the processor has]
    #[arg(long, value_name = "NAME", value_parser = available_kernels, help_heading = "Model")]
    kernels: Option<Isa>,
}

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelName {
    /// One of those in the program.
    Demo(Demo),
    /// A checkpoint folder.
    Folder(PathBuf),
}

impl From<&str> for ModelName {
    fn from(name: &str) -> Self {
        Demo::from_name(name).map_or_else(|| Self::Folder(name.into()), Self::Demo)
    }
}

/// Precision of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ActivationType {
    /// 32-bit floats
    F32,
    /// 8-bit integers with a scale for each group
    Int8,
}

/// Number format of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheType {
    /// 32-bit floats
    F32,
    /// 16-bit floats
    F16,
    /// 16-bit floats with the range of 32-bit ones
    Bf16,
}

/// What the flags mean.
#[derive(Clone, Debug)]
pub(crate) struct ModelSettings {
    /// Which model.
    pub(crate) model: ModelName,
    /// Most tokens of a sequence, if the user chose.
    pub(crate) context: Option<usize>,
    /// Threads to compute with.
    pub(crate) threads: usize,
    /// Whether each stays on a core of its own.
    pin: bool,
    /// Number format of caches.
    pub(crate) key_value_dtype: DType,
    /// Precision of activations, if the user chose.
    activations: Option<ActivationType>,
    /// Instruction set of the kernels.
    isa: Isa,
}

impl ModelSettings {
    /// The device for answers: fast where the weights are rough anyway.
    pub(crate) fn device(&self) -> Device {
        self.device_with(ActivationType::Int8)
    }

    /// The device for comparisons with a reference.
    pub(crate) fn exact_device(&self) -> Device {
        self.device_with(ActivationType::F32)
    }

    fn device_with(&self, default: ActivationType) -> Device {
        let activations = match self.activations.unwrap_or(default) {
            ActivationType::F32 => Activations::F32,
            ActivationType::Int8 => Activations::Int8,
        };
        // A flag's value is only accepted if the processor has it.
        let kernels = Cpu::with_pool(self.isa, self.pool()).unwrap_or_else(|| Cpu::new(self.threads));
        Device::with_kernels(kernels.with_activations(activations))
    }

    /// The calling thread, which is not pinned, finds the core that the others leave.
    fn pool(&self) -> Pool {
        if !self.pin {
            return Pool::new(self.threads);
        }
        Pool::starting(self.threads, |thread| {
            if let Err(error) = cores::keep_on(thread) {
                output::stderr(&format!("warning: thread {thread} cannot be kept on a core: {error}\n"));
            }
        })
    }
}

impl ModelFlags {
    /// Resolves the defaults that depend on the machine.
    pub(crate) fn settings(self) -> ModelSettings {
        ModelSettings {
            model: self.model,
            context: self.context,
            threads: self.threads.unwrap_or_else(all_cores),
            pin: self.pin,
            key_value_dtype: match self.kv {
                CacheType::F32 => DType::F32,
                CacheType::F16 => DType::F16,
                CacheType::Bf16 => DType::BF16,
            },
            activations: self.cpu_activations,
            isa: self.kernels.unwrap_or_else(Isa::best),
        }
    }
}

fn available_kernels(name: &str) -> Result<Isa, String> {
    let available = Isa::all();
    available.iter().copied().find(|isa| isa.name() == name).ok_or_else(|| {
        let names: Vec<&str> = available.iter().map(|isa| isa.name()).collect();
        format!("this processor can run {}", names.join(", "))
    })
}

/// Cores that this process may use.
pub(super) fn all_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_the_processor_lacks_are_refused_with_those_it_has() {
        assert_eq!(available_kernels("scalar"), Ok(Isa::Scalar));
        assert!(available_kernels("sse2").unwrap_err().contains("scalar"));
    }

    #[test]
    fn only_the_bare_word_means_the_demo() {
        assert_eq!(ModelName::from("demo"), ModelName::Demo(Demo::Qwen));
        assert_eq!(ModelName::from("demo:glm"), ModelName::Demo(Demo::Glm));
        assert_eq!(ModelName::from("./demo"), ModelName::Folder("./demo".into()));
    }
}
