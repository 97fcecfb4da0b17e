//! Matrix products at the shapes of model layers: one row (decode, limited by reading weights), four (a speculative
//! check) and 512 (prefill, limited by arithmetic).
//!
//! divan prints bytes of weights per second for the matvecs and operations per second for the rest.

#[path = "../tests/support/mod.rs"]
mod support;

use std::fmt::{self, Display, Formatter};

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use ds4_cpu_kernels::{Activations, Cpu, Isa, grouped_linear, linear, sort_by_expert};
use support::{Random, Weights};

/// (layer, outputs, inputs). `mid`: a hidden size of 1024; `demo`: the bundled model's 192.
const LAYERS: [(&str, usize, usize); 5] = [
    ("mid.linear_attn.in_proj", 4096, 1024),
    ("mid.mlp.down_proj", 1024, 3584),
    ("mid.lm_head", 65536, 1024),
    ("demo.linear_attn.in_proj", 768, 192),
    ("demo.lm_head", 8192, 192),
];

/// (format, its number in [`Weights::new`], the precision of activations); affine groups are of 64.
const FORMATS: [(&str, usize, Activations); 6] = [
    ("f32", 0, Activations::F32),
    ("bf16", 2, Activations::F32),
    ("affine4", 4, Activations::F32),
    ("affine8", 7, Activations::F32),
    ("affine4 int8", 4, Activations::Int8),
    ("affine8 int8", 7, Activations::Int8),
];

/// Scales and biases as checkpoints have them.
const BF16: [usize; 2] = [2, 2];

/// A layer in a format.
#[derive(Clone, Copy)]
struct Case {
    format: usize,
    layer: usize,
}

impl Display for Case {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", LAYERS[self.layer].0, FORMATS[self.format].0)
    }
}

fn main() {
    divan::main();
}

/// Two threads with the instruction set that the variable `ISA` names, or the best.
fn cpu(activations: Activations) -> Cpu {
    let isa = match std::env::var("ISA").as_deref() {
        Ok("scalar") => Isa::Scalar,
        #[cfg(target_arch = "x86_64")]
        Ok("avx2") => Isa::Avx2,
        _ => Isa::best(),
    };
    Cpu::with_isa(isa, 2).expect("an instruction set of this machine").with_activations(activations)
}

fn cases() -> impl Iterator<Item = Case> {
    (0..LAYERS.len()).flat_map(|layer| (0..FORMATS.len()).map(move |format| Case { format, layer }))
}

/// The largest layer would take seconds a call.
fn small_cases() -> impl Iterator<Item = Case> {
    cases().filter(|case| LAYERS[case.layer].1 < 8192)
}

/// Enough copies of the matrix that they do not all stay in the cache, as those of a whole model would not. With the
/// environment variable `HOT` only one.
fn copies(format: usize, n: usize, k: usize) -> Vec<Weights> {
    const BEYOND_CACHE: usize = 128 << 20;
    let most = if std::env::var_os("HOT").is_some() { 1 } else { 64 };
    let mut random = Random(1);
    let mut new = || Weights::with_floats(&mut random, format, BF16, n, k);
    let first = new();
    let count = (BEYOND_CACHE / first.matrix().bytes(n, k)).clamp(1, most);
    std::iter::once(first).chain((1..count).map(|_| new())).collect()
}

fn run(bencher: Bencher<'_, '_>, case: Case, m: usize) {
    let ((_, format, activations), (_, n, k)) = (FORMATS[case.format], LAYERS[case.layer]);
    let cpu = cpu(activations);
    let x = Random(2).floats(m * k);
    let weights = copies(format, n, k);
    let mut out = vec![0.0; m * n];
    let mut next = 0;
    let call = || {
        next = (next + 1) % weights.len();
        linear(&cpu, &x, weights[next].matrix(), m, n, k, &mut out);
    };
    if m == 1 {
        bencher.counter(BytesCount::new(weights[0].matrix().bytes(n, k))).bench_local(call);
    } else {
        bencher.counter(ItemsCount::new(2 * m * n * k)).bench_local(call);
    }
}

#[divan::bench(args = cases())]
fn matvec(bencher: Bencher<'_, '_>, case: Case) {
    run(bencher, case, 1);
}

#[divan::bench(args = cases())]
fn verify_4_rows(bencher: Bencher<'_, '_>, case: Case) {
    run(bencher, case, 4);
}

#[divan::bench(args = cases())]
fn batch_8_rows(bencher: Bencher<'_, '_>, case: Case) {
    run(bencher, case, 8);
}

#[divan::bench(args = small_cases(), sample_count = 20)]
fn matmul_512_rows(bencher: Bencher<'_, '_>, case: Case) {
    run(bencher, case, 512);
}

/// 512 tokens through 8 of 128 experts, hidden 1024, expert size 512, in the format of that number in the list.
#[divan::bench(args = [1, 2, 4], sample_count = 20)]
fn mid_experts_gate_up_512_tokens(bencher: Bencher<'_, '_>, format: usize) {
    let (experts, top, n, k, tokens) = (128, 8, 1024, 1024, 512);
    let mut random = Random(3);
    let w = Weights::with_floats(&mut random, FORMATS[format].1, BF16, experts * n, k);
    let x = random.floats(tokens * k);
    let routes: Vec<u32> = (0..tokens * top).map(|_| random.below(experts) as u32).collect();
    let (mut rows, mut position) = (vec![0; routes.len()], vec![0; routes.len()]);
    let mut offsets = vec![0; experts + 1];
    sort_by_expert(&routes, top, &mut rows, &mut offsets, &mut position);
    let mut out = vec![0.0; routes.len() * n];
    let cpu = cpu(FORMATS[format].2);
    bencher
        .counter(ItemsCount::new(2 * routes.len() * n * k))
        .bench_local(|| grouped_linear(&cpu, &x, w.matrix(), Some(&rows), &offsets, n, k, &mut out));
}
