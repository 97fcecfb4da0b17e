//! Checks of `config.json` and their errors, the same in every family.

use crate::ModelError;

/// The error of a field that is not what it must be.
pub(crate) fn wrong_value(field: &'static str, expected: impl ToString, actual: impl ToString) -> ModelError {
    ModelError::ConfigValue { field, expected: expected.to_string(), actual: actual.to_string() }
}

/// An error about `field` unless it `holds`.
pub(crate) fn require(
    holds: bool,
    field: &'static str,
    expected: impl ToString,
    actual: impl ToString,
) -> Result<(), ModelError> {
    if holds { Ok(()) } else { Err(wrong_value(field, expected, actual)) }
}

/// An error unless a list has one entry for each layer.
pub(crate) fn require_entry_per_layer(
    field: &'static str,
    entries: usize,
    layers: usize,
) -> Result<(), ModelError> {
    if entries == layers { Ok(()) } else { Err(ModelError::ConfigEntries { field, entries, layers }) }
}

/// An error about the first of the fields that is 0.
pub(crate) fn require_positive(fields: &[(&'static str, usize)]) -> Result<(), ModelError> {
    fields.iter().try_for_each(|&(field, size)| require(size > 0, field, "at least 1", size))
}
