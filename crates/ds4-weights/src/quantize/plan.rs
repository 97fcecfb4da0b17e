//! Decides, before anything is written, what happens to each tensor and what the new ones are called.

use ds4_dtype::{AffineLayout, DType};

use super::QuantizeError;
use crate::{Checkpoint, Tensor, TensorSpec, WeightsError};

/// What happens to every tensor of a checkpoint.
pub(crate) struct Plan {
    /// One for each tensor, in the checkpoint's order.
    pub(crate) treatments: Vec<Treatment>,
    /// The tensors to be written.
    pub(crate) specs: Vec<TensorSpec>,
    /// Weights left alone because of their shape.
    pub(crate) unsuitable: Vec<(String, Vec<usize>)>,
}

/// What happens to one tensor.
pub(crate) enum Treatment {
    Copy,
    Quantize(Names),
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

impl Plan {
    pub(crate) fn of(
        checkpoint: &Checkpoint,
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
        for tensor in checkpoint.tensors() {
            plan.add(tensor, layout, keep);
        }
        if plan.treatments.iter().all(|treatment| matches!(treatment, Treatment::Copy)) {
            return Err(QuantizeError::NothingToQuantize { model, group: layout.group() });
        }
        Ok(plan)
    }

    fn add(&mut self, tensor: &Tensor, layout: AffineLayout, keep: &dyn Fn(&str) -> bool) {
        let matrix = tensor.dtype.is_float() && matches!(tensor.shape.len(), 2 | 3) && !tensor.is_empty();
        let wanted = matrix && !keep(&tensor.name);
        let width = tensor.shape.last().copied().unwrap_or(1);
        if wanted && layout.check_width(width).is_ok() {
            let names = Names::of(&tensor.name);
            let with_width = |width: usize| {
                let mut shape = tensor.shape.clone();
                shape.truncate(shape.len() - 1);
                shape.push(width);
                shape
            };
            let (words, groups) = (with_width(width / layout.per_word()), with_width(width / layout.group()));
            self.specs.push(TensorSpec::new(&names.weight, DType::U32, words));
            self.specs.push(TensorSpec::new(&names.scales, tensor.dtype, groups.clone()));
            self.specs.push(TensorSpec::new(&names.biases, tensor.dtype, groups));
            self.treatments.push(Treatment::Quantize(names));
            return;
        }
        if wanted {
            self.unsuitable.push((tensor.name.clone(), tensor.shape.clone()));
        }
        self.specs.push(TensorSpec::new(&tensor.name, tensor.dtype, tensor.shape.clone()));
        self.treatments.push(Treatment::Copy);
    }
}

fn has_scales(checkpoint: &Checkpoint, tensor: &Tensor) -> bool {
    tensor.dtype == DType::U32 && checkpoint.get(&Names::of(&tensor.name).scales).is_some()
}
