//! Time of one sampled token at the vocabulary sizes of the supported families.

use divan::Bencher;
use ds4_sampling::{Sampler, SamplerConfig, SamplerRule, logprobs};

fn main() {
    divan::main();
}

/// A row like a language model's: a bulk with standard deviation 2 and a few tokens far above it.
fn row(vocabulary: usize) -> Vec<f32> {
    let mut row = flat_row(vocabulary);
    for (rank, token) in (0..vocabulary).step_by(vocabulary / 30).enumerate() {
        row[token] = 20.0 - rank as f32 * 0.4;
    }
    row
}

/// The bulk alone: tens of thousands of tokens hold the nucleus.
fn flat_row(vocabulary: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u32 << 24) as f32
    };
    (0..vocabulary).map(|_| ((0..12).map(|_| uniform()).sum::<f32>() - 6.0) * 2.0).collect()
}

fn bench(bencher: Bencher<'_, '_>, vocabulary: usize, config: SamplerConfig) {
    bench_row(bencher, &row(vocabulary), config);
}

fn bench_row(bencher: Bencher<'_, '_>, row: &[f32], config: SamplerConfig) {
    let mut sampler = Sampler::new(config).expect("the benchmark's parameters are valid");
    bencher.bench_local(|| sampler.sample(row));
}

#[divan::bench(args = [129_280, 248_320])]
fn mtplx_top_k_20_top_p_95(bencher: Bencher<'_, '_>, vocabulary: usize) {
    let config = SamplerConfig { temperature: 1.0, top_p: 0.95, top_k: 20, ..SamplerConfig::default() };
    bench(bencher, vocabulary, config);
}

#[divan::bench(args = [129_280, 248_320])]
fn mtplx_top_p_95(bencher: Bencher<'_, '_>, vocabulary: usize) {
    bench(bencher, vocabulary, SamplerConfig { temperature: 1.0, top_p: 0.95, ..SamplerConfig::default() });
}

#[divan::bench(args = [248_320])]
fn mtplx_top_p_95_flat(bencher: Bencher<'_, '_>, vocabulary: usize) {
    let config = SamplerConfig { temperature: 1.0, top_p: 0.95, ..SamplerConfig::default() };
    bench_row(bencher, &flat_row(vocabulary), config);
}

#[divan::bench(args = [129_280, 248_320])]
fn greedy(bencher: Bencher<'_, '_>, vocabulary: usize) {
    bench(bencher, vocabulary, SamplerConfig::default());
}

#[divan::bench(args = [129_280, 248_320])]
fn ds4_min_p(bencher: Bencher<'_, '_>, vocabulary: usize) {
    let config =
        SamplerConfig { temperature: 1.0, min_p: 0.05, rule: SamplerRule::Ds4, ..SamplerConfig::default() };
    bench(bencher, vocabulary, config);
}

#[divan::bench(args = [129_280, 248_320])]
fn ds4_top_p_95(bencher: Bencher<'_, '_>, vocabulary: usize) {
    let config =
        SamplerConfig { temperature: 1.0, top_p: 0.95, rule: SamplerRule::Ds4, ..SamplerConfig::default() };
    bench(bencher, vocabulary, config);
}

#[divan::bench(args = [248_320])]
fn top_logprobs_20(bencher: Bencher<'_, '_>, vocabulary: usize) {
    let row = row(vocabulary);
    bencher.bench_local(|| logprobs(&row, 5, 20));
}
