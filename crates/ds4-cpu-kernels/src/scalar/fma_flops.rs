//! Multiply-adds on registers.

const CHAINS: usize = 16;

/// Runs the loop; the result only keeps it from being removed.
pub(crate) fn spin(iterations: usize) -> f32 {
    let [a, b, start] = std::hint::black_box([0.999f32, 0.001, 2.0]);
    let mut sums: [f32; CHAINS] = std::array::from_fn(|i| start * i as f32);
    for _ in 0..iterations {
        sums.iter_mut().for_each(|sum| *sum = *sum * a + b);
    }
    sums.iter().sum()
}

/// Operations in `iterations` rounds.
pub(crate) fn operations(iterations: usize) -> usize {
    iterations * CHAINS * 2
}
