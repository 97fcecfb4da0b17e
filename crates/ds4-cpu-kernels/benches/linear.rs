//! Matrix products at the shapes of model layers: one row (decode, limited by reading weights), four (a speculative
//! check) and 512 (prefill, limited by arithmetic).
//!
//! divan prints bytes of weights per second for the matvecs and operations per second for the rest.

#[path = "../tests/support/mod.rs"]
mod support;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use ds4_cpu_kernels::{Cpu, grouped_linear, linear, sort_by_expert};
use support::{Random, Weights};

/// (layer, outputs, inputs). `mid`: a hidden size of 1024; `demo`: the bundled model's 192.
const LAYERS: [(&str, usize, usize); 5] = [
    ("mid.linear_attn.in_proj", 4096, 1024),
    ("mid.mlp.down_proj", 1024, 3584),
    ("mid.lm_head", 65536, 1024),
    ("demo.linear_attn.in_proj", 768, 192),
    ("demo.lm_head", 8192, 192),
];

/// Names of the formats by their number in [`Weights::new`].
const BF16: usize = 2;
const F32: usize = 0;
const AFFINE4: usize = 4;
const AFFINE8: usize = 7;

fn main() {
    divan::main();
}

/// Enough copies of the matrix that they do not all stay in the cache, as those of a whole model would not.
fn copies(format: usize, n: usize, k: usize) -> Vec<Weights> {
    const BEYOND_CACHE: usize = 128 << 20;
    let mut random = Random(1);
    let first = Weights::new(&mut random, format, n, k);
    let count = (BEYOND_CACHE / first.matrix().bytes(n, k)).clamp(1, 64);
    std::iter::once(first).chain((1..count).map(|_| Weights::new(&mut random, format, n, k))).collect()
}

fn run(bencher: Bencher<'_, '_>, format: usize, m: usize, (_, n, k): (&str, usize, usize)) {
    let cpu = Cpu::new(2);
    let x = Random(2).floats(m * k);
    let weights =
        if m == 1 { copies(format, n, k) } else { vec![Weights::new(&mut Random(1), format, n, k)] };
    let mut out = vec![0.0; m * n];
    let mut next = 0;
    let mut call = || {
        next = (next + 1) % weights.len();
        linear(&cpu, &x, weights[next].matrix(), m, n, k, &mut out);
    };
    if m == 1 {
        bencher.counter(BytesCount::new(weights[0].matrix().bytes(n, k))).bench_local(call);
    } else {
        bencher.counter(ItemsCount::new(2 * m * n * k)).bench_local(&mut call);
    }
}

#[divan::bench(args = LAYERS.map(|l| l.0), consts = [F32, BF16, AFFINE4, AFFINE8])]
fn matvec<const FORMAT: usize>(bencher: Bencher<'_, '_>, layer: &str) {
    run(bencher, FORMAT, 1, shape(layer));
}

#[divan::bench(args = LAYERS.map(|l| l.0), consts = [BF16, AFFINE4])]
fn verify_4_rows<const FORMAT: usize>(bencher: Bencher<'_, '_>, layer: &str) {
    run(bencher, FORMAT, 4, shape(layer));
}

#[divan::bench(args = ["mid.linear_attn.in_proj", "mid.mlp.down_proj", "demo.linear_attn.in_proj"], consts = [F32, BF16, AFFINE4, AFFINE8], sample_count = 20)]
fn matmul_512_rows<const FORMAT: usize>(bencher: Bencher<'_, '_>, layer: &str) {
    run(bencher, FORMAT, 512, shape(layer));
}

fn shape(layer: &str) -> (&str, usize, usize) {
    LAYERS.into_iter().find(|l| l.0 == layer).expect("a layer of the list")
}

/// 512 tokens through 8 of 128 experts, hidden 1024, expert size 512.
#[divan::bench(consts = [BF16, AFFINE4], sample_count = 20)]
fn mid_experts_gate_up_512_tokens<const FORMAT: usize>(bencher: Bencher<'_, '_>) {
    let (experts, top, n, k, tokens) = (128, 8, 1024, 1024, 512);
    let mut random = Random(3);
    let w = Weights::new(&mut random, FORMAT, experts * n, k);
    let x = random.floats(tokens * k);
    let routes: Vec<u32> = (0..tokens * top).map(|_| random.below(experts) as u32).collect();
    let (mut rows, mut offsets, mut position) =
        (vec![0; routes.len()], vec![0; experts + 1], vec![0; routes.len()]);
    sort_by_expert(&routes, top, &mut rows, &mut offsets, &mut position);
    let mut out = vec![0.0; routes.len() * n];
    let cpu = Cpu::new(2);
    bencher
        .counter(ItemsCount::new(2 * routes.len() * n * k))
        .bench_local(|| grouped_linear(&cpu, &x, w.matrix(), &rows, &offsets, n, k, &mut out));
}
