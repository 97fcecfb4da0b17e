//! Whether a tokenizer can belong to a model: all that can be told from their sizes. That the ids mean the same to both is
//! not visible here.

use anyhow::ensure;

/// A share of the embedding's rows that padding does not reach: it fills up to a multiple of a few hundred.
const MORE_THAN_PADDING: usize = 32;

/// Refuses ids that the embedding has no row for; a remark if there are far fewer ids than rows. `ids` is one more than the
/// highest id of the tokenizer.
pub(crate) fn check(ids: usize, rows: usize) -> anyhow::Result<Option<String>> {
    ensure!(
        ids <= rows,
        "tokenizer.json has ids up to {}, and the model's vocabulary ends at {}: they do not belong together; copy \
         tokenizer.json from the model's original checkpoint",
        ids.saturating_sub(1),
        rows.saturating_sub(1)
    );
    let remark = || {
        format!(
            "tokenizer.json has {ids} tokens, and the model has room for {rows}: if answers make no sense, it may belong to \
             another model"
        )
    };
    Ok((rows - ids > rows / MORE_THAN_PADDING).then(remark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_normal_and_half_a_vocabulary_is_not() {
        for (ids, rows) in [(4096, 4096), (151_669, 151_936), (128_815, 129_280)] {
            assert_eq!(check(ids, rows).unwrap(), None);
        }
        assert!(check(4096, 151_936).unwrap().unwrap().contains("has 4096 tokens"));
        let error = check(4097, 4096).unwrap_err().to_string();
        assert!(
            error.starts_with("tokenizer.json has ids up to 4096, and the model's vocabulary ends at 4095")
        );
    }
}
