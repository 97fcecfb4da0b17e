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

/// What goes into a call.
struct Inputs {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    g: Vec<f32>,
    beta: Vec<f32>,
    key_heads: usize,
    value_heads: usize,
    d: usize,
}

impl Inputs {
    fn new(key_heads: usize, value_heads: usize, d: usize, tokens: usize) -> Self {
        let mut random = Random(1);
        let (q, k) = (random.scaled(tokens * key_heads * d, 0.1), random.scaled(tokens * key_heads * d, 0.1));
        let v = random.floats(tokens * value_heads * d);
        let (g, beta) = (vec![-0.1; tokens * value_heads], vec![0.5; tokens * value_heads]);
        Self { q, k, v, g, beta, key_heads, value_heads, d }
    }

    fn args(&self) -> GatedDeltaArgs<'_> {
        let Self { q, k, v, g, beta, key_heads, value_heads, d } = self;
        let (key_heads, value_heads, dk, dv) = (*key_heads, *value_heads, *d, *d);
        GatedDeltaArgs { q, k, v, g, beta, key_heads, value_heads, dk, dv }
    }

    /// Elements of a state.
    fn state(&self) -> usize {
        self.value_heads * self.d * self.d
    }
}

#[divan::bench(args = LAYERS.map(|l| l.0), sample_count = 20)]
fn layer(bencher: Bencher<'_, '_>, layer: &str) {
    let (_, key_heads, value_heads, d, tokens) =
        LAYERS.into_iter().find(|l| l.0 == layer).expect("a layer of the list");
    let inputs = Inputs::new(key_heads, value_heads, d, tokens);
    let mut state = vec![0.0; inputs.state()];
    let mut out = vec![0.0; inputs.v.len()];
    let (cpu, args) = (Cpu::new(2), inputs.args());
    bencher.counter(ItemsCount::new(7 * tokens * state.len())).bench_local(|| {
        gated_delta(&cpu, &args, &mut [DeltaSequence::new(0..tokens, None, &mut state)], &mut out)
    });
}

/// A speculative check: tokens go on from a state that is kept, in as many layers as do not stay in the cache.
#[divan::bench(args = [1, 2, 4, 8], sample_count = 300)]
fn check(bencher: Bencher<'_, '_>, tokens: usize) {
    let inputs = Inputs::new(8, 16, 128, tokens);
    let size = inputs.state();
    let mut states = vec![vec![0.0; size + 16]; 64];
    let aligned = |state: &[f32]| state.as_ptr().align_offset(64);
    let mut out = vec![0.0; inputs.v.len()];
    let (cpu, args) = (Cpu::new(2), inputs.args());
    let mut next = 0;
    bencher.counter(ItemsCount::new(7 * tokens * size)).bench_local(|| {
        next = (next + 2) % states.len();
        let [before, state] = states.get_disjoint_mut([next, next + 1]).expect("two states");
        let (from, to) = (aligned(before), aligned(state));
        let (before, state) = (&before[from..from + size], &mut state[to..to + size]);
        gated_delta(&cpu, &args, &mut [DeltaSequence::new(0..tokens, Some(before), state)], &mut out)
    });
}
