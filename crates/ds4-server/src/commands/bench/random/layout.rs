//! Which tensors the file has and where: matrices as packed 4-bit values with scales and biases, the rest as bf16.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value, json};

/// Bits of a quantised value.
const BITS: usize = 4;

/// End of the name of a table from token ids to experts.
const TOKEN_TABLE: &str = ".tid2eid";

/// What a tensor is filled with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Content {
    /// Packed values, evenly distributed.
    Packed,
    /// Scales that give the weights of a row of `inner` values a variance of 1 / inner.
    Scales { inner: usize },
    /// The biases for these scales, which centre the weights on zero.
    Biases { inner: usize },
    /// Weights of a norm: around 1.
    Norm,
    /// A small dense tensor: around 0.
    Dense,
    /// 64-bit ids of experts, different ones in each row of `columns`.
    Experts { columns: usize, experts: u64 },
}

/// A tensor of the file.
#[derive(Debug)]
pub(super) struct Slot {
    name: String,
    pub(super) content: Content,
    shape: Vec<usize>,
    pub(super) bytes: Range<usize>,
}

/// The whole file.
#[derive(Debug)]
pub(super) struct Plan {
    /// In order of `bytes`, without gaps.
    pub(super) slots: Vec<Slot>,
    /// Length and JSON, padded so that the data is aligned to a cache line.
    pub(super) header: Vec<u8>,
}

impl Plan {
    /// Names and shapes of dense tensors to a file of quantised ones.
    ///
    /// Tables that send token ids to `experts` experts hold ids.
    pub(super) fn of(needed: &BTreeMap<String, Vec<usize>>, experts: u64) -> Self {
        let mut slots: Vec<Slot> =
            needed.iter().flat_map(|(name, shape)| tensors(name, shape, experts)).collect();
        // Wider elements first: then all are aligned.
        slots.sort_by_key(|slot| std::cmp::Reverse(slot.element_size()));
        let mut end = 0;
        for slot in &mut slots {
            let size = slot.shape.iter().product::<usize>() * slot.element_size();
            slot.bytes = end..end + size;
            end += size;
        }
        let entries = slots.iter().map(|slot| (slot.name.clone(), slot.entry()));
        let mut json = Value::Object(entries.collect::<Map<_, _>>()).to_string().into_bytes();
        json.resize((json.len() + 8).next_multiple_of(64) - 8, b' ');
        let mut header = (json.len() as u64).to_le_bytes().to_vec();
        header.extend(json);
        Self { slots, header }
    }

    /// Bytes of the whole file.
    pub(super) fn file_bytes(&self) -> usize {
        self.header.len() + self.slots.last().map_or(0, |slot| slot.bytes.end)
    }
}

impl Slot {
    fn new(name: String, content: Content, shape: Vec<usize>) -> Self {
        Self { name, content, shape, bytes: 0..0 }
    }

    fn element_size(&self) -> usize {
        match self.content {
            Content::Experts { .. } => 8,
            Content::Packed => 4,
            Content::Scales { .. } | Content::Biases { .. } | Content::Norm | Content::Dense => 2,
        }
    }

    fn entry(&self) -> Value {
        let dtype = match self.content {
            Content::Experts { .. } => "I64",
            Content::Packed => "U32",
            Content::Scales { .. } | Content::Biases { .. } | Content::Norm | Content::Dense => "BF16",
        };
        json!({"dtype": dtype, "shape": self.shape, "data_offsets": [self.bytes.start, self.bytes.end]})
    }
}

/// The tensors that stand for one dense tensor.
fn tensors(name: &str, shape: &[usize], experts: u64) -> Vec<Slot> {
    let inner = shape.last().copied().unwrap_or(1);
    if name.ends_with(TOKEN_TABLE) {
        let content = Content::Experts { columns: inner, experts };
        return vec![Slot::new(name.to_owned(), content, shape.to_vec())];
    }
    let group = [64, 32].into_iter().find(|group| inner.is_multiple_of(*group));
    match (name.strip_suffix(".weight"), group) {
        (Some(base), Some(group)) if shape.len() > 1 => {
            let with_width = |width| {
                let mut sizes = shape.to_vec();
                sizes[shape.len() - 1] = width;
                sizes
            };
            let groups = with_width(inner / group);
            vec![
                Slot::new(name.to_owned(), Content::Packed, with_width(inner * BITS / 32)),
                Slot::new(format!("{base}.scales"), Content::Scales { inner }, groups.clone()),
                Slot::new(format!("{base}.biases"), Content::Biases { inner }, groups),
            ]
        }
        (Some(_), _) if shape.len() == 1 => vec![Slot::new(name.to_owned(), Content::Norm, shape.to_vec())],
        // Filters of convolutions have an axis more in checkpoints for MLX, and norms are then not centred on zero.
        _ if shape.len() == 2 => {
            vec![Slot::new(name.to_owned(), Content::Dense, vec![shape[0], shape[1], 1])]
        }
        _ => vec![Slot::new(name.to_owned(), Content::Dense, shape.to_vec())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_are_quantised_in_the_largest_groups_that_fit() {
        let shapes = |name: &str, shape: &[usize]| -> Vec<Vec<usize>> {
            tensors(name, shape, 8).into_iter().map(|slot| slot.shape).collect()
        };
        assert_eq!(shapes("a.weight", &[3, 128]), [vec![3, 16], vec![3, 2], vec![3, 2]]);
        assert_eq!(shapes("a.weight", &[5, 3, 160]), [vec![5, 3, 20], vec![5, 3, 5], vec![5, 3, 5]]);
        assert_eq!(shapes("norm.weight", &[128]), [vec![128]]);
        assert_eq!(shapes("conv1d.weight", &[64, 4]), [vec![64, 4, 1]]);
        assert_eq!(shapes("A_log", &[16]), [vec![16]]);
    }

    #[test]
    fn data_is_aligned_and_has_no_gaps() {
        let needed = [("norm.weight", vec![33]), ("a.weight", vec![3, 64]), ("bias", vec![1])];
        let plan = Plan::of(&needed.map(|(name, shape)| (name.to_owned(), shape)).into(), 8);
        assert_eq!(plan.header.len() % 64, 0);
        let mut end = 0;
        for slot in &plan.slots {
            assert_eq!(slot.bytes.start, end);
            assert_eq!(slot.bytes.start % slot.element_size(), 0);
            end = slot.bytes.end;
        }
        assert_eq!(plan.file_bytes(), plan.header.len() + end);
    }
}
