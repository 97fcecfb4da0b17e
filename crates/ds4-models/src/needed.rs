//! Which tensors a configuration asks for, found by loading a model without any.

use std::collections::BTreeMap;

use ds4_array::{Device, Stream};
use ds4_layers::{ParamError, ParamProblem};
use ds4_weights::ModelFiles;

use crate::{LoadOptions, ModelError, load};

/// Names and shapes of the tensors that the model described by `files` needs and `files` does not have. Weights are listed
/// as dense ones, `NAME.weight` with their full shape; a quantised triple of that name fits as well.
///
/// # Errors
/// Whatever else than absent tensors keeps the model from being loaded.
pub fn missing_tensors(files: &ModelFiles) -> Result<BTreeMap<String, Vec<usize>>, ModelError> {
    let options = LoadOptions::new(&Stream::new(&Device::reference()));
    let problems = match load(files, &options) {
        Ok(_) => Vec::new(),
        Err(ModelError::Params(ParamError::Problems(problems))) => problems,
        Err(other) => return Err(other),
    };
    let is_absence = |problem: &ParamProblem| matches!(problem, ParamProblem::Missing { .. });
    if !problems.iter().all(is_absence) {
        return Err(ParamError::Problems(problems).into());
    }
    let missing = problems.into_iter().filter_map(|problem| match problem {
        ParamProblem::Missing { name, shape } => Some((name, shape)),
        _ => None,
    });
    Ok(missing.collect())
}
