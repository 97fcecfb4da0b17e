//! Compare a vector file with one made anew: weights and integers must be equal, computed values close.

use std::fmt;
use std::path::Path;

use anyhow::Context;
use safetensors::{Dtype, SafeTensors};

/// The reference library picks its kernels by processor, so computed values may differ by the order of sums.
const COMPUTED_VALUES_AGREE_WITHIN: f32 = 1e-5;

/// The file whose floats are computed and not drawn.
const COMPUTED: [&str; 2] = ["golden.safetensors", "decisions.safetensors"];

/// What a comparison found.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    Identical,
    /// Computed values differ by at most this much, and that is allowed.
    Close(f32),
    Different(String),
}

impl Found {
    pub(super) fn is_same(&self) -> bool {
        !matches!(self, Self::Different(_))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identical => f.write_str("identical"),
            Self::Close(error) => write!(f, "computed values within {error:.1e}"),
            Self::Different(why) => write!(f, "DIFFERENT: {why}"),
        }
    }
}

pub(super) fn files(recorded: &Path, made: &Path) -> anyhow::Result<Found> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let (old, new) = (read(recorded)?, read(made)?);
    if old == new {
        return Ok(Found::Identical);
    }
    if recorded.extension().is_none_or(|e| e != "safetensors") {
        return Ok(Found::Different("the text is another".to_owned()));
    }
    let computed = recorded.file_name().is_some_and(|name| COMPUTED.iter().any(|c| name == *c));
    tensors(&SafeTensors::deserialize(&old)?, &SafeTensors::deserialize(&new)?, computed)
}

fn tensors(old: &SafeTensors<'_>, new: &SafeTensors<'_>, computed: bool) -> anyhow::Result<Found> {
    let (mut old_names, mut new_names) = (old.names(), new.names());
    old_names.sort_unstable();
    new_names.sort_unstable();
    if old_names != new_names {
        return Ok(Found::Different("it holds other tensors".to_owned()));
    }
    let mut worst = 0.0_f32;
    for name in old_names {
        let (a, b) = (old.tensor(name)?, new.tensor(name)?);
        if a.shape() != b.shape() || a.dtype() != b.dtype() {
            return Ok(Found::Different(format!("`{name}` has another shape or type")));
        }
        if a.data() == b.data() {
            continue;
        }
        if !computed || a.dtype() != Dtype::F32 {
            return Ok(Found::Different(format!("`{name}` has other values")));
        }
        let error = largest_difference(a.data(), b.data());
        if error > COMPUTED_VALUES_AGREE_WITHIN {
            return Ok(Found::Different(format!("`{name}` differs by {error:.1e}")));
        }
        worst = worst.max(error);
    }
    Ok(Found::Close(worst))
}

/// Relative to the largest magnitude where that is above one, absolute otherwise.
fn largest_difference(a: &[u8], b: &[u8]) -> f32 {
    let floats =
        |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|c| f32::from_le_bytes(*c)).collect::<Vec<_>>();
    let (a, b) = (floats(a), floats(b));
    let largest = a.iter().fold(1.0_f32, |most, v| most.max(v.abs()));
    // `max` would drop a NaN, so a difference that is no number counts as infinite.
    let difference = |(x, y): (&f32, &f32)| if (x - y).is_nan() { f32::INFINITY } else { (x - y).abs() };
    a.iter().zip(&b).map(difference).fold(0.0, f32::max) / largest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn found(old: &[f32], new: &[f32], computed: bool) -> Found {
        let (a, b) = (bytes(old), bytes(new));
        let file = |data: &[u8]| {
            let view = safetensors::tensor::TensorView::new(Dtype::F32, vec![data.len() / 4], data).unwrap();
            safetensors::serialize([("x", view)], None).unwrap()
        };
        let (a, b) = (file(&a), file(&b));
        tensors(&SafeTensors::deserialize(&a).unwrap(), &SafeTensors::deserialize(&b).unwrap(), computed)
            .unwrap()
    }

    #[test]
    fn computed_values_may_be_close_but_weights_may_not() {
        assert!(found(&[1.0, 2.0], &[1.0, 2.000_001], true).is_same());
        assert!(!found(&[1.0, 2.0], &[1.0, 2.000_001], false).is_same());
        assert!(!found(&[1.0, 2.0], &[1.0, 2.1], true).is_same());
        assert!(!found(&[1.0, 2.0], &[1.0, f32::NAN], true).is_same());
    }
}
