//! `quantize`: writes a smaller checkpoint and says what became of the weights.

use ds4_weights::quantize::{QuantizeOptions, QuantizeReport, quantize};
use ds4_weights::{ModelFiles, keeps_precision};

use super::sizes;
use crate::flags::QuantizeFlags;
use crate::progress::Progress;
use crate::{model_loader, output};

pub(super) fn run(flags: &QuantizeFlags) -> anyhow::Result<()> {
    let files = model_loader::open(&flags.model)?;
    let bar = Progress::new("quantising", flags.quiet);
    let options = QuantizeOptions { bits: flags.bits, group: flags.group, keep: &keeps_precision };
    let report = quantize(&files, &flags.out, options, &mut |done, total, tensor| {
        bar.set(done, total);
        bar.note(tensor);
    })?;
    drop(bar);
    if !flags.quiet {
        output::stderr(&describe(&report, flags));
        output::stderr(&unused(&files));
    }
    Ok(())
}

/// Parts that the result has although nothing here uses them: others may.
fn unused(files: &ModelFiles) -> String {
    // A model that cannot be described can be quantised all the same.
    let skipped = ds4_models::describe(files).map(|model| model.skipped).unwrap_or_default();
    let line = |part: &ds4_models::SkippedPart| {
        format!("note: the result keeps {}, which this server does not use\n", part.count())
    };
    skipped.iter().map(line).collect()
}

fn describe(report: &QuantizeReport, flags: &QuantizeFlags) -> String {
    let mut text = format!(
        "{} weights quantised to {} bits in groups of {}, {} tensors kept\n{} before, {} after, in {}\n",
        report.quantized,
        flags.bits,
        flags.group,
        report.copied,
        sizes::bytes(report.bytes_before),
        sizes::bytes(report.bytes_after),
        flags.out.display(),
    );
    for (name, shape) in &report.unsuitable {
        let group = flags.group;
        text.push_str(&format!("kept: {name} {shape:?}, whose rows do not divide into groups of {group}\n"));
    }
    text
}
