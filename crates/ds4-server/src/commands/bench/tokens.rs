//! Tokens without a pattern, so that experts and table rows are used evenly; the same in each run.

pub(super) fn arbitrary(count: usize, vocabulary: usize) -> Vec<u32> {
    // Multiplier and increment of Knuth's MMIX generator; the high bits are the good ones.
    let next = |state: &u64| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    };
    std::iter::successors(next(&0), next)
        .map(|state| ((state >> 33) % vocabulary as u64) as u32)
        .take(count)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_in_the_vocabulary_and_spread_over_it() {
        let tokens = arbitrary(10_000, 16);
        for id in 0..16 {
            let count = tokens.iter().filter(|&&token| token == id).count();
            assert!((400..900).contains(&count), "{id}: {count}");
        }
    }
}
