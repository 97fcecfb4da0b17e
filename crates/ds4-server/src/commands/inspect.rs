//! `inspect`: what a checkpoint is and needs, for people or as JSON.

use anyhow::bail;
use ds4_models::Description;
use serde_json::json;

use super::sizes;
use crate::flags::InspectFlags;
use crate::{model_loader, output};

pub(super) fn run(flags: &InspectFlags) -> anyhow::Result<()> {
    let files = model_loader::open(&flags.model)?;
    let mut description = ds4_models::describe(&files)?;
    let context = flags.context.unwrap_or(description.max_context);
    match model_loader::load_text(&files, &description.model_type, description.vocabulary, context) {
        Ok((_, remarks)) => description.remarks.extend(remarks),
        Err(error) => description.problems.push(format!("{error:#}")),
    }
    let text = if flags.json { as_json(&description, context) } else { for_people(&description, context) };
    output::stdout(&text)?;
    if !description.problems.is_empty() {
        bail!("{} cannot be run: {}", files.name(), description.problems.join("\n"));
    }
    Ok(())
}

fn for_people(model: &Description, context: usize) -> String {
    let mut page = Page::default();
    page.line("family", format!("{} ({})", model.family, model.model_type));
    page.line("parameters", sizes::count(model.parameters));
    for layer in &model.layers {
        page.line("layers", format!("{:>3} {}", layer.count, layer.kind));
    }
    for (name, value) in &model.sizes {
        page.line(name, value);
    }
    for (dtype, bytes) in &model.bytes_by_type {
        page.line("weights", format!("{} in {dtype}", sizes::bytes(*bytes)));
    }
    if model.table_bytes > 0 {
        let bytes = sizes::bytes(model.table_bytes);
        page.line("", format!("{bytes} of these are n-gram tables, read from disk row by row"));
    }
    let resident = model.resident_bytes();
    let cache = model.cache_size.bytes(context);
    page.line("context", format!("{} tokens at most", model.max_context));
    page.line("memory", format!("{} for the weights", sizes::bytes(resident)));
    page.line("", format!("{} for caches at {context} tokens, in float32", sizes::bytes(cache)));
    page.line("", format!("{} together", sizes::bytes(resident.saturating_add(cache))));
    for remark in remarks(model) {
        page.line("remark", remark);
    }
    page.0
}

fn remarks(model: &Description) -> impl Iterator<Item = String> {
    model.skipped.iter().map(ToString::to_string).chain(model.remarks.iter().cloned())
}

/// Lines of a name and a value, the names in a column. A name is shown once for the lines that share it.
#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        let repeated = self
            .0
            .lines()
            .rev()
            .find(|line| !line.starts_with(' '))
            .is_some_and(|line| line.split("  ").next() == Some(name));
        let name = if repeated { "" } else { name };
        self.0.push_str(&format!("{name:<12}  {value}\n"));
    }
}

fn as_json(model: &Description, context: usize) -> String {
    let layers = model.layers.iter().map(|layer| json!({"kind": layer.kind, "count": layer.count}));
    let sizes = model.sizes.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
    let bytes = model.bytes_by_type.iter().map(|(dtype, bytes)| (dtype.clone(), json!(bytes)));
    let value = json!({
        "family": model.family,
        "model_type": model.model_type,
        "parameters": model.parameters,
        "layers": layers.collect::<Vec<_>>(),
        "sizes": sizes.collect::<serde_json::Map<_, _>>(),
        "bytes_by_type": bytes.collect::<serde_json::Map<_, _>>(),
        "table_bytes": model.table_bytes,
        "max_context": model.max_context,
        "memory": {
            "context": context,
            "weight_bytes": model.resident_bytes(),
            "cache_bytes": model.cache_size.bytes(context),
        },
        "remarks": remarks(model).collect::<Vec<_>>(),
        "problems": model.problems,
    });
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_name_is_shown_once() {
        let mut page = Page::default();
        page.line("layers", "6 of one kind");
        page.line("layers", "2 of another");
        page.line("context", 4096);
        assert_eq!(page.0, "layers        6 of one kind\n              2 of another\ncontext       4096\n");
    }
}
