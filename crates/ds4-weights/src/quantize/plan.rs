//! Decides, before anything is written, what happens to each tensor and what the new ones are called.

use std::collections::BTreeSet;

use ds4_dtype::{AffineLayout, DType};

use super::QuantizeError;
use super::source::Source;
use crate::{Checkpoint, Tensor, TensorSpec, WeightsError};

/// What happens to every tensor of a checkpoint.
pub(crate) struct Plan<'a> {
    /// One for each tensor, in the checkpoint's order.
    pub(crate) treatments: Vec<Treatment<'a>>,
    /// The tensors to be written.
    pub(crate) specs: Vec<TensorSpec>,
    /// Weights left alone because of their shape.
    pub(crate) unsuitable: Vec<(String, Vec<usize>)>,
}

/// What happens to one tensor.
pub(crate) enum Treatment<'a> {
    Copy,
    Quantize(Names, Source<'a>),
    /// Scales of a weight that is quantised anew.
    Drop,
}

/// Names of the three tensors a weight becomes.
pub(crate) struct Names {
    pub(crate) weight: String,
    pub(crate) scales: String,
    pub(crate) biases: String,
}

impl Names {
    fn of(name: &str) -> Self {
        let base = name.strip_suffix(".weight").unwrap_or(name);
        Self {
            weight: format!("{base}.weight"),
            scales: format!("{base}.scales"),
            biases: format!("{base}.biases"),
        }
    }
}

impl<'a> Plan<'a> {
    pub(crate) fn of(
        checkpoint: &'a Checkpoint,
        layout: AffineLayout,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<Self, QuantizeError> {
        let model = checkpoint.model().to_owned();
        // Their bytes could be copied, but the result would not run here.
        if let Some(found) = checkpoint.unsupported().next() {
            let (tensor, dtype) = (found.name.clone(), found.dtype.clone());
            return Err(WeightsError::UnsupportedDType { model, tensor, dtype }.into());
        }
        if let Some(tensor) = checkpoint.tensors().find(|tensor| has_scales(checkpoint, tensor)) {
            let evidence = format!("`{}` has scales", tensor.name);
            return Err(QuantizeError::AlreadyQuantized { model, evidence });
        }
        let mut plan = Self { treatments: Vec::new(), specs: Vec::new(), unsuitable: Vec::new() };
        let mut replaced = BTreeSet::new();
        for tensor in checkpoint.tensors() {
            let source = Source::of(checkpoint, tensor)?;
            match source.filter(|_| !keep(&tensor.name)) {
                Some(source) if layout.check_width(source.width()).is_ok() => {
                    replaced.extend(source.scales_name());
                    let names = Names::of(&tensor.name);
                    plan.specs.extend(affine_specs(&names, &source, layout));
                    plan.treatments.push(Treatment::Quantize(names, source));
                }
                wanted => {
                    plan.unsuitable.extend(wanted.map(|source| (tensor.name.clone(), source.shape())));
                    plan.treatments.push(Treatment::Copy);
                }
            }
        }
        for (tensor, treatment) in checkpoint.tensors().zip(&mut plan.treatments) {
            match treatment {
                Treatment::Copy if replaced.contains(tensor.name.as_str()) => *treatment = Treatment::Drop,
                Treatment::Copy => {
                    plan.specs.push(TensorSpec::new(&tensor.name, tensor.dtype, tensor.shape.clone()));
                }
                Treatment::Quantize(..) | Treatment::Drop => {}
            }
        }
        if plan.treatments.iter().all(|treatment| matches!(treatment, Treatment::Copy)) {
            return Err(QuantizeError::NothingToQuantize { model, group: layout.group() });
        }
        Ok(plan)
    }
}

fn affine_specs(names: &Names, source: &Source<'_>, layout: AffineLayout) -> [TensorSpec; 3] {
    let with_width = |width: usize| {
        let mut shape = source.shape();
        shape.pop();
        shape.push(width);
        shape
    };
    let width = source.width();
    let (words, groups) = (with_width(width / layout.per_word()), with_width(width / layout.group()));
    [
        TensorSpec::new(&names.weight, DType::U32, words),
        TensorSpec::new(&names.scales, source.float_type(), groups.clone()),
        TensorSpec::new(&names.biases, source.float_type(), groups),
    ]
}

fn has_scales(checkpoint: &Checkpoint, tensor: &Tensor) -> bool {
    tensor.dtype == DType::U32 && checkpoint.get(&Names::of(&tensor.name).scales).is_some()
}
