//! Every vector kernel has a scalar twin of the same file name: the fallback, and the oracle of its tests.

use super::Source;

const SCALAR: &str = "crates/ds4-cpu-kernels/src/scalar/";

const VECTOR: &[&str] = &[
    "crates/ds4-cpu-kernels/src/x86_64/avx2/",
    "crates/ds4-cpu-kernels/src/x86_64/avx512/",
    "crates/ds4-cpu-kernels/src/aarch64/neon/",
];

/// Files in a vector folder that hold no op, each with its reason.
const NO_OPS: &[(&str, &str)] = &[
    ("mod.rs", "the folder's module"),
    ("attention_rows.rs", "the rows of an attention task, for all attention kernels"),
    ("block_storage.rs", "reads block-scaled weights, for all products"),
    ("delta_columns.rs", "columns of a recurrent state, for the delta rules"),
    ("lanes.rs", "loads, stores and sums of one register"),
    ("linear_int8_few.rs", "a part of linear_int8.rs"),
    ("linear_int8_groups.rs", "a part of linear_int8.rs"),
    ("linear_int8_panel.rs", "a part of linear_int8.rs"),
    ("linear_int8_scales.rs", "a part of linear_int8.rs"),
    ("linear_int8_stored.rs", "a part of linear_int8.rs"),
    ("packing.rs", "unpacks quantised words, for all products"),
    ("exp.rs", "the exponential that several ops use"),
    ("panel.rs", "the inner block of the matrix products"),
    ("stored_product.rs", "the product with stored rows, for all float formats"),
    ("storage.rs", "loads of half and quantised weights as float32 registers"),
];

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let names: Vec<String> = sources.iter().map(Source::name).collect();
    let mut problems = Vec::new();
    for name in &names {
        let Some(op) = VECTOR.iter().find_map(|folder| name.strip_prefix(folder)) else { continue };
        let is_op = !NO_OPS.iter().any(|(file, _)| *file == op);
        if is_op && !names.contains(&format!("{SCALAR}{op}")) {
            problems.push(format!("{name} has no scalar twin {SCALAR}{op}"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_op_without_a_twin_is_found() {
        let file = |path: String| Source { path: path.into(), text: String::new() };
        let with = [file(format!("{}rope.rs", VECTOR[0])), file(format!("{SCALAR}rope.rs"))];
        assert!(check(&with).is_empty());
        assert_eq!(check(&with[..1]).len(), 1);
    }
}
