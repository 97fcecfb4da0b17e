//! The gated delta rule at the shapes of model layers. Items are floating-point operations: 7 for each element of the
//! state and token.

#[path = "../tests/support/mod.rs"]
mod support;

use divan::Bencher;
use divan::counter::ItemsCount;
use ds4_cpu_kernels::{Cpu, DeltaSequence, GatedDeltaArgs, gated_delta};
use support::Random;

/// (layer, key heads, value heads, head size, tokens).
const LAYERS: [(&str, usize, usize, usize, usize); 4] = [
    ("mid.linear_attn decode", 16, 32, 128, 1),
    ("mid.linear_attn prefill 512", 16, 32, 128, 512),
    ("demo.linear_attn decode", 2, 4, 32, 1),
    ("demo.linear_attn prefill 512", 2, 4, 32, 512),
];

fn main() {
    divan::main();
}

#[divan::bench(args = LAYERS.map(|l| l.0), sample_count = 20)]
fn layer(bencher: Bencher<'_, '_>, layer: &str) {
    let (_, key_heads, value_heads, d, tokens) =
        LAYERS.into_iter().find(|l| l.0 == layer).expect("a layer of the list");
    let mut random = Random(1);
    let (q, k) = (random.scaled(tokens * key_heads * d, 0.1), random.scaled(tokens * key_heads * d, 0.1));
    let v = random.floats(tokens * value_heads * d);
    let g = vec![-0.1; tokens * value_heads];
    let beta = vec![0.5; tokens * value_heads];
    let mut state = vec![0.0; value_heads * d * d];
    let mut out = vec![0.0; v.len()];
    let args =
        GatedDeltaArgs { q: &q, k: &k, v: &v, g: &g, beta: &beta, key_heads, value_heads, dk: d, dv: d };
    let cpu = Cpu::new(2);
    bencher.counter(ItemsCount::new(7 * tokens * state.len())).bench_local(|| {
        gated_delta(&cpu, &args, &mut [DeltaSequence::new(0..tokens, None, &mut state)], &mut out)
    });
}
