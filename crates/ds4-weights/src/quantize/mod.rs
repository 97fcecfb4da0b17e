//! Rewrites a checkpoint with its large weights in the affine layout of MLX. Sources are float weights, and small floats
//! with block scales (fp8, packed fp4), which are decoded on the way.
//!
//! A weight `X.weight` becomes `X.weight` (packed u32), `X.scales` and `X.biases`; packed experts, whose names have no
//! `.weight`, gain it. Everything else is copied bit for bit. Memory stays bounded by one chunk of rows, whatever the
//! size of the model, and the output folder appears only when it is complete.

mod config;
mod encode;
mod error;
mod output_folder;
mod plan;
mod precision;
mod source;

use std::path::Path;

use ds4_dtype::AffineLayout;

use crate::{Checkpoint, ModelFiles, ShardWriter, Tensor};
use output_folder::OutputFolder;
use plan::{Plan, Treatment};

pub use error::QuantizeError;
pub use precision::keeps_precision;

/// Data of one weight file, as the usual tools have it.
const SHARD_BYTES: u64 = 5 << 30;
/// A model's files that are copied unchanged, where present.
const COPIED_FILES: [&str; 4] =
    ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"];

/// How to quantise.
#[derive(Clone, Copy)]
pub struct QuantizeOptions<'a> {
    /// Bits of an element: 4 or 8.
    pub bits: u32,
    /// Elements that share a scale: 32, 64 or 128.
    pub group: usize,
    /// Tensors, by full name, that stay as they are; usually [`keeps_precision`].
    pub keep: &'a dyn Fn(&str) -> bool,
}

/// What became of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantizeReport {
    /// Number of weights that were quantised.
    pub quantized: usize,
    /// Number of tensors that were copied, those in `unsuitable` included.
    pub copied: usize,
    /// Weights that should have been quantised, but whose rows do not divide into groups; with their shapes.
    pub unsuitable: Vec<(String, Vec<usize>)>,
    /// Bytes of all tensors before.
    pub bytes_before: u64,
    /// Bytes of all tensors after.
    pub bytes_after: u64,
    /// Names of the weight files.
    pub files: Vec<String>,
}

/// Quantises the model `files` into the folder `out`, which must be empty or not exist.
///
/// `progress` is called with bytes read, bytes in all, and the tensor being worked on.
///
/// # Errors
/// Unsupported options, a source that is damaged or quantised already, an output folder in use, weights that are not
/// finite, and whatever the file system refuses. Nothing is left in `out` then.
pub fn quantize(
    files: &ModelFiles,
    out: &Path,
    options: QuantizeOptions<'_>,
    progress: &mut dyn FnMut(u64, u64, &str),
) -> Result<QuantizeReport, QuantizeError> {
    let layout = AffineLayout::new(options.bits, options.group)?;
    let config = config::quantized_config(files, layout)?;
    let checkpoint = Checkpoint::load(files)?;
    let plan = Plan::of(&checkpoint, layout, options.keep)?;

    let folder = OutputFolder::create(out, files.folder())?;
    let mut writer = ShardWriter::create(folder.path(), &plan.specs, SHARD_BYTES)?;
    let total = checkpoint.total_bytes();
    let mut done = 0;
    for (tensor, treatment) in checkpoint.tensors().zip(&plan.treatments) {
        progress(done, total, &tensor.name);
        let mut advance = |bytes: usize| {
            done += bytes as u64;
            progress(done, total, &tensor.name);
        };
        match treatment {
            Treatment::Quantize(names, source) => {
                encode::write(&mut writer, tensor, source, names, layout, &mut advance)?;
            }
            Treatment::Copy => copy(&mut writer, tensor, &mut advance)?,
            Treatment::Drop => advance(tensor.bytes.as_ref().len()),
        }
    }
    let written = writer.finish()?;
    for name in COPIED_FILES {
        if let Some(contents) = files.read(name)? {
            folder.write(name, &contents)?;
        }
    }
    // Last: a folder with it is a complete model.
    folder.write(config::CONFIG_FILE, &config)?;
    folder.finish()?;
    let count = |is: fn(&Treatment<'_>) -> bool| plan.treatments.iter().filter(|t| is(t)).count();
    Ok(QuantizeReport {
        quantized: count(|treatment| matches!(treatment, Treatment::Quantize(..))),
        copied: count(|treatment| matches!(treatment, Treatment::Copy)),
        unsuitable: plan.unsuitable,
        bytes_before: total,
        bytes_after: written.bytes,
        files: written.files,
    })
}

fn copy(
    writer: &mut ShardWriter,
    tensor: &Tensor,
    advance: &mut dyn FnMut(usize),
) -> Result<(), QuantizeError> {
    const PART: usize = 64 << 20;
    for part in tensor.bytes.as_ref().chunks(PART) {
        writer.write(&tensor.name, part)?;
        advance(part.len());
    }
    Ok(())
}
