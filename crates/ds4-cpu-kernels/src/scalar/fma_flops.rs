//! Multiply-adds on registers.

const CHAINS: usize = 16;

/// Runs the loop; the result only keeps it from being removed.
pub(crate) fn spin(iterations: usize) -> f32 {
    let mut sums = [1.0f32; CHAINS];
    for _ in 0..iterations {
        sums.iter_mut().for_each(|sum| *sum = *sum * 0.999 + 0.001);
    }
    sums.iter().sum()
}

/// Operations in `iterations` rounds.
pub(crate) fn operations(iterations: usize) -> usize {
    iterations * CHAINS * 2
}
