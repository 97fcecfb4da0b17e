//! `copy.jsonl`: settings, block ladder and n-gram matches, equal.

use super::files::{Fields, records};
use ds4_sampling::{CopySettings, NgramIndex, block_length};
use serde_json::Value;

/// Settings out of range are repaired as by the reference. Returns the number of cases.
pub fn settings() -> usize {
    let mut seen = 0;
    for record in records("copy.jsonl").iter().filter(|record| record.text("kind") == "settings") {
        let wanted = |variable: &str, default: usize| {
            let text = record["env"].get(variable).and_then(Value::as_str);
            // Negative sizes and words cannot be expressed here: the reference turns them into floor and default.
            text.map_or(default, |text| {
                text.parse().unwrap_or(if text.starts_with('-') { 0 } else { default })
            })
        };
        let default = CopySettings::default();
        let settings = CopySettings {
            block: wanted("MTPLX_CONTEXT_COPY_K", default.block),
            probation_block: wanted("MTPLX_CONTEXT_COPY_PROBATION_K", default.probation_block),
            ngram: wanted("MTPLX_CONTEXT_COPY_NGMIN", default.ngram),
            min_extension: wanted("MTPLX_CONTEXT_COPY_MINEXT", default.min_extension),
            ..default
        }
        .repaired();
        assert_eq!(settings.block as u64, record.u64("context_copy_block_k"));
        assert_eq!(settings.probation_block as u64, record.u64("context_copy_probation_k"));
        assert_eq!(settings.ngram as u64, record.u64("context_copy_ng_min"));
        assert_eq!(settings.ngram_max as u64, record.u64("context_copy_ng_max"));
        assert_eq!(settings.min_extension as u64, record.u64("context_copy_min_ext"));
        seen += 1;
    }
    assert_eq!(seen, 10);
    seen
}

/// Longer matches earn longer blocks. Returns the number of entries of the ladder.
pub fn ladder() -> usize {
    let records = records("copy.jsonl");
    let ladder = records.iter().find(|record| record.text("kind") == "block_for_ext").unwrap();
    for entry in ladder.list("table") {
        let number = |at: usize| entry[at].as_i64().unwrap();
        // The reference reads "no match" (-1) as extension 0.
        let extension = number(0).max(0) as usize;
        assert_eq!(block_length(extension, number(1) as usize) as i64, number(2), "{entry}");
    }
    let widths = records.iter().find(|record| record.text("kind") == "ladder_widths").unwrap();
    let caps = widths.ids("caps");
    let mut found: Vec<u32> =
        caps.iter().flat_map(|&cap| (0..5).map(move |e| 1 + block_length(e, cap as usize) as u32)).collect();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, widths.ids("widths"));
    ladder.list("table").len()
}

/// The best match is found. Returns the number of look-ups.
pub fn matches() -> usize {
    let mut seen = 0;
    for record in records("copy.jsonl").iter().filter(|record| record.text("kind") == "find") {
        let prompt = record.ids("prompt");
        let tail = record.ids("tail");
        let index = NgramIndex::new(&prompt, record.u64("ng_min") as usize, record.u64("ng_max") as usize);
        for (limit, position, extension) in
            [(prompt.len(), "pos", "ext"), (usize::MAX, "pos_unbounded", "ext_unbounded")]
        {
            let found = index.find(&tail, limit);
            let name = record.text("name");
            assert_eq!(found.map(|found| found.position as u64), record[position].as_u64(), "{name} {limit}");
            assert_eq!(
                found.map_or(-1, |found| found.extension as i64),
                record[extension].as_i64().unwrap(),
                "{name} {limit}"
            );
        }
        seen += 1;
    }
    assert_eq!(seen, 42);
    seen
}
