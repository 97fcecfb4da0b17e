//! Parts of tensor names that more than one family meets.

/// Whether a tensor belongs to a vision tower.
pub(crate) fn is_vision(name: &str) -> bool {
    ["model.visual.", "visual.", "vision_tower."].iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a tensor is a table that is read row by row, and may be larger than memory.
pub fn is_row_table(name: &str) -> bool {
    name.contains("ngram")
}

/// A name without what the layouts put before the text model: released (`model.language_model.`), transformers (`model.`)
/// or MLX (`language_model.model.`).
pub(crate) fn inner(name: &str) -> &str {
    let prefixes = ["model.language_model.", "language_model.model.", "language_model.", "model."];
    prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}
