//! One pass over a row: its maximum, the maximum of each block, and whether a logit is NaN or +infinity.

use crate::SamplingError;

/// Logits per block. Small enough that a block with one large logit costs little to search.
pub(crate) const BLOCK: usize = 64;

/// Block maxima of the row scanned last; later passes skip whole blocks with them.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowScan {
    block_max: Vec<f32>,
}

impl RowScan {
    /// Scans `logits` and returns the maximum, which is finite. Errors name the first faulty token.
    pub(crate) fn run(&mut self, logits: &[f32]) -> Result<f32, SamplingError> {
        if logits.is_empty() {
            return Err(SamplingError::EmptyRow);
        }
        self.block_max.clear();
        let mut faulty = false;
        for block in logits.chunks(BLOCK) {
            let (max, finite) = block_maximum(block);
            faulty |= !finite;
            self.block_max.push(max);
        }
        if faulty {
            return Err(first_fault(logits));
        }
        let max = self.block_max.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if max == f32::NEG_INFINITY {
            return Err(SamplingError::AllTokensMasked { vocabulary: logits.len() });
        }
        Ok(max)
    }

    /// The first token with the largest logit.
    pub(crate) fn argmax(&mut self, logits: &[f32]) -> Result<u32, SamplingError> {
        let max = self.run(logits)?;
        let mut at = 0;
        self.visit_at_least(logits, max, |id, _| {
            at = id;
            false
        });
        Ok(at)
    }

    /// Calls `visit(id, logit)` in ascending order for the logits of at least `floor`, until it returns false.
    pub(crate) fn visit_at_least(&self, logits: &[f32], floor: f32, mut visit: impl FnMut(u32, f32) -> bool) {
        for (index, (block, &max)) in logits.chunks(BLOCK).zip(&self.block_max).enumerate() {
            if max < floor {
                continue;
            }
            for (offset, &logit) in block.iter().enumerate() {
                if logit >= floor && !visit((index * BLOCK + offset) as u32, logit) {
                    return;
                }
            }
        }
    }

    /// Blocks of the row with their first id and maximum, in order.
    pub(crate) fn blocks<'a>(&'a self, logits: &'a [f32]) -> impl Iterator<Item = (u32, f32, &'a [f32])> {
        logits
            .chunks(BLOCK)
            .zip(&self.block_max)
            .enumerate()
            .map(|(index, (block, &max))| ((index * BLOCK) as u32, max, block))
    }
}

/// Independent lanes, so that the loop compiles to vector instructions.
fn block_maximum(block: &[f32]) -> (f32, bool) {
    const LANES: usize = 16;
    let mut max = [f32::NEG_INFINITY; LANES];
    let mut faulty = [false; LANES];
    let groups = block.chunks_exact(LANES);
    let rest = groups.remainder();
    for group in groups {
        for lane in 0..LANES {
            let logit = group[lane];
            max[lane] = if logit > max[lane] { logit } else { max[lane] };
            faulty[lane] |= logit.is_nan() | (logit == f32::INFINITY);
        }
    }
    for (lane, &logit) in rest.iter().enumerate() {
        max[lane] = if logit > max[lane] { logit } else { max[lane] };
        faulty[lane] |= logit.is_nan() | (logit == f32::INFINITY);
    }
    (max.into_iter().fold(f32::NEG_INFINITY, f32::max), !faulty.contains(&true))
}

fn first_fault(logits: &[f32]) -> SamplingError {
    let fault = logits.iter().enumerate().find(|(_, logit)| logit.is_nan() || **logit == f32::INFINITY);
    let (token, value) = fault.map_or((0, f32::NAN), |(token, &value)| (token as u32, value));
    SamplingError::NonFiniteLogit { token, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_named_wherever_it_is() {
        for length in [1, 15, 16, 17, 64, 65, 200] {
            for at in [0, length / 2, length - 1] {
                for value in [f32::NAN, f32::INFINITY] {
                    let mut row = vec![0.0; length];
                    row[at] = value;
                    match RowScan::default().run(&row) {
                        Err(SamplingError::NonFiniteLogit { token, .. }) => assert_eq!(token as usize, at),
                        other => panic!("{length} {at} {value}: {other:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn masked_tokens_are_allowed_but_not_all_of_them() {
        let mut row = vec![f32::NEG_INFINITY; 70];
        assert_eq!(RowScan::default().run(&row), Err(SamplingError::AllTokensMasked { vocabulary: 70 }));
        row[69] = -3.0;
        assert_eq!(RowScan::default().argmax(&row), Ok(69));
        assert_eq!(RowScan::default().run(&[]), Err(SamplingError::EmptyRow));
    }
}
