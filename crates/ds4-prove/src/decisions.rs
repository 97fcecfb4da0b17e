//! Routes, selections and n-gram rows: equal to the reference's, not close.

use std::collections::BTreeMap;

use ds4_models::{BlockSelection, LayerDecisions};
use ds4_testkit::golden::{Decisions, Table, TensorFile};
use ds4_testkit::tolerance::SELECTION_TOO_NEAR;

use crate::report::Report;

/// A model's decisions in the form of the golden files.
pub(crate) fn tabulate(layers: &[LayerDecisions], tokens: usize) -> anyhow::Result<Decisions> {
    let mut tables = Decisions::default();
    for (layer, seen) in layers.iter().enumerate() {
        if let Some(routes) = &seen.routes {
            tables
                .routes
                .insert(layer, table(tokens, routes.to_vec::<u32>()?.into_iter().map(i64::from).collect()));
        }
        if let Some(selection) = &seen.selection {
            tables.selection.insert(layer, visible(selection, tokens)?);
        }
        if let Some(rows) = &seen.ngram_rows {
            let rows = rows.iter().copied().map(i64::try_from).collect::<Result<_, _>>()?;
            tables.ngram_ids.insert(layer, table(tokens, rows));
        }
    }
    Ok(tables)
}

/// Reports each kind of decision as one item.
pub(crate) fn compare(report: &mut Report, item: &str, expected: &Decisions, actual: &Decisions) {
    let kinds = [
        ("routes", &expected.routes, &actual.routes),
        ("selections", &expected.selection, &actual.selection),
        ("n-gram rows", &expected.ngram_ids, &actual.ngram_ids),
    ];
    for (kind, expected, actual) in kinds.into_iter().filter(|(_, e, a)| !(e.is_empty() && a.is_empty())) {
        let item = format!("{item}, {kind}");
        match first_difference(expected, actual) {
            None => report.passed(&item, &format!("equal in {} layers", expected.len())),
            Some(place) => report.failed(&item, &place),
        }
    }
}

/// Compares the selected blocks of the queries past the budget. A query whose cut falls between two scores too near to tell
/// apart may go either way: the reference's file says how wide each gap is.
pub(crate) fn compare_long(
    report: &mut Report,
    expected: &TensorFile,
    layers: &[LayerDecisions],
) -> anyhow::Result<()> {
    let first = usize::try_from(expected.integers("long.first_query")?.values[0])?;
    let gaps = expected.by_layer("long.gap.", TensorFile::floats)?;
    for (layer, blocks) in expected.by_layer("long.blocks.", TensorFile::integers)? {
        let item = format!("demo, selections of layer {layer} past the budget");
        let Some(selection) = layers.get(layer).and_then(|seen| seen.selection.as_ref()) else {
            report.failed(&item, "the layer selects nothing");
            continue;
        };
        let ids = selection.blocks.to_vec::<u32>()?;
        let top = selection.blocks.shape()[1];
        let rows =
            ids.chunks(top).skip(first).zip(blocks.values.chunks(blocks.columns)).zip(&gaps[&layer].values);
        let (mut equal, mut ties, mut near) = (0, 0, 0);
        let mut different = Vec::new();
        for (query, ((selected, expected), &gap)) in rows.enumerate() {
            let expected = (0..).zip(expected).filter(|(_, seen)| **seen == 1).map(|(block, _)| block);
            let is_equal = selected.iter().copied().filter(|&id| id != u32::MAX).eq(expected);
            match is_equal {
                true => (equal, ties) = (equal + 1, ties + usize::from(gap == 0.0)),
                false if gap > 0.0 && gap < SELECTION_TOO_NEAR => near += 1,
                false => different.push(first + query),
            }
        }
        let figure =
            format!("{equal} queries equal, {ties} of them cut inside a tie, {near} too near to tell");
        match different.first() {
            None => report.passed(&item, &figure),
            Some(query) => {
                report.failed(&item, &format!("{} differ, first query {query}; {figure}", different.len()))
            }
        }
    }
    Ok(())
}

/// Where two sets of tables differ first, in words.
fn first_difference(expected: &BTreeMap<usize, Table>, actual: &BTreeMap<usize, Table>) -> Option<String> {
    if !expected.keys().eq(actual.keys()) {
        return Some(format!("expected in layers {:?}, got {:?}", expected.keys(), actual.keys()));
    }
    expected.iter().zip(actual.values()).find_map(|((layer, e), a)| {
        if e == a {
            return None;
        }
        let different = e.values.chunks(e.columns).zip(a.values.chunks(a.columns)).position(|(e, a)| e != a);
        let token = different.map_or_else(|| "their sizes".to_owned(), |token| format!("token {token}"));
        Some(format!("layer {layer} differs in {token}"))
    })
}

/// [T, T] 1 where a query sees a key: the selected blocks, and the tail behind the complete ones.
fn visible(selection: &BlockSelection, tokens: usize) -> anyhow::Result<Table> {
    let (blocks, block) = (selection.blocks.to_vec::<u32>()?, selection.block);
    let mut seen = vec![0; tokens * tokens];
    for (query, (selected, row)) in
        blocks.chunks(blocks.len() / tokens).zip(seen.chunks_mut(tokens)).enumerate()
    {
        for first in selected.iter().filter(|&&id| id != u32::MAX).map(|&id| id as usize * block) {
            row[first..first + block].fill(1);
        }
        row[(query + 1) / block * block..=query].fill(1);
    }
    Ok(table(tokens, seen))
}

fn table(rows: usize, values: Vec<i64>) -> Table {
    Table { columns: values.len() / rows, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_found_with_its_place() {
        let tables = |values: &[i64]| BTreeMap::from([(3, table(2, values.to_vec()))]);
        assert_eq!(first_difference(&tables(&[1, 2, 3, 4]), &tables(&[1, 2, 3, 4])), None);
        let found = first_difference(&tables(&[1, 2, 3, 4]), &tables(&[1, 2, 4, 3]));
        assert_eq!(found.as_deref(), Some("layer 3 differs in token 1"));
        assert!(first_difference(&tables(&[1, 2]), &BTreeMap::new()).is_some());
    }
}
