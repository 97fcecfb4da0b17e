//! What a speculative decoder puts out is what plain decoding would: token by token if greedy, in distribution if not.
//!
//! The model is a table: the logits after a token depend on that token only, for target and head alike. So the tokens
//! that follow each token are independent draws from a known distribution, which a chi-square test can check.

// A helper of a test may panic like the test itself.
#![allow(clippy::unwrap_used)]

use ds4_sampling::speculative::{
    Correction, DepthControl, DepthSettings, ExpectedValueDepth, FinishReason, NextRow, Plan,
    SpeculativeConfig, SpeculativeDecoder,
};
use ds4_sampling::{CopySettings, Sampler, SamplerConfig, Shaper, TokenCounts};
use proptest::prelude::*;

const VOCABULARY: usize = 12;
/// Upper quantile of the normal distribution at 1e-6.
const Z: f64 = 4.753_424;

/// Logits by previous token.
#[derive(Debug, Clone)]
struct Model {
    target: Vec<Vec<f32>>,
    head: Vec<Vec<f32>>,
}

impl Model {
    /// Pseudo-random logits; the head is a noisy copy of the target.
    fn new(seed: u64, noise: f32) -> Self {
        let mut state = seed.wrapping_mul(2).wrapping_add(1);
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u32 << 24) as f32
        };
        let mut table = |spread: f32, base: Option<&Vec<Vec<f32>>>| -> Vec<Vec<f32>> {
            let cell = |row: usize, at: usize| base.map_or(0.0, |base| base[row][at]);
            (0..VOCABULARY)
                .map(|row| (0..VOCABULARY).map(|at| cell(row, at) + (uniform() - 0.5) * spread).collect())
                .collect()
        };
        let target = table(5.0, None);
        let head = table(noise, Some(&target));
        Self { target, head }
    }
}

fn config(
    target: SamplerConfig,
    depth: usize,
    copy: bool,
    correction: Correction,
    max_tokens: usize,
) -> SpeculativeConfig {
    SpeculativeConfig {
        draft: SamplerConfig { presence_penalty: 0.0, frequency_penalty: 0.0, ..target.clone() },
        target,
        depth: DepthControl::Fixed(depth),
        copy: CopySettings { enabled: copy, ngram: 2, ngram_max: 4, ..CopySettings::default() },
        max_tokens,
        stop_tokens: vec![],
        correction,
    }
}

/// Runs a decoder to its end and returns the answer.
fn run(model: &Model, prompt: &[u32], config: SpeculativeConfig) -> (Vec<u32>, SpeculativeDecoder) {
    let mut decoder = SpeculativeDecoder::new(config, prompt).unwrap();
    while step(model, prompt, &mut decoder).is_none() {}
    (decoder.tokens().to_vec(), decoder)
}

/// One cycle.
fn step(model: &Model, prompt: &[u32], decoder: &mut SpeculativeDecoder) -> Option<FinishReason> {
    let last = *decoder.tokens().last().unwrap_or(&prompt[prompt.len() - 1]);
    match decoder.begin(&model.target[last as usize]).unwrap() {
        Plan::Finished(reason) => return Some(reason),
        Plan::Copy { .. } => {}
        Plan::Draft { depth, .. } => {
            let mut more = depth > 0;
            while more {
                let last = *decoder.window().last().unwrap();
                more = decoder.draft(&model.head[last as usize]).unwrap().more;
            }
        }
    }
    let window = decoder.window().to_vec();
    let outcome = decoder.verify(|row| &model.target[window[row] as usize], None).unwrap();
    assert_eq!(outcome.keep, outcome.accepted + 1);
    assert_eq!(outcome.next_row == NextRow::None, decoder.pending().is_some());
    None
}

fn plain(model: &Model, prompt: &[u32], config: SamplerConfig, max_tokens: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(config).unwrap();
    let mut text = prompt.to_vec();
    for _ in 0..max_tokens {
        let token = sampler.sample(&model.target[text[text.len() - 1] as usize]).unwrap();
        sampler.record(token);
        text.push(token);
    }
    text.split_off(prompt.len())
}

fn sampled(seed: u64) -> SamplerConfig {
    SamplerConfig { temperature: 1.0, top_p: 0.95, top_k: 8, seed, ..SamplerConfig::default() }
}

/// A prompt in which most pairs of tokens occur, so that blocks are copied and often rejected.
fn prompt(model: &Model) -> Vec<u32> {
    plain(model, &[0], sampled(99), 400)
}

/// Fails if the tokens that follow each token are not draws from the target's distribution (p = 1e-6 a row).
fn assert_distribution(model: &Model, first: u32, answers: &[Vec<u32>], config: SamplerConfig, what: &str) {
    let mut counts = vec![[0u32; VOCABULARY]; VOCABULARY];
    for answer in answers {
        let previous = std::iter::once(&first).chain(answer);
        previous.zip(answer).for_each(|(&from, &to)| counts[from as usize][to as usize] += 1);
    }
    let mut shaper = Shaper::new(config).unwrap();
    for (from, counts) in counts.iter().enumerate() {
        let expected = shaper.shape(&model.target[from], &TokenCounts::default()).unwrap();
        let n = f64::from(counts.iter().sum::<u32>());
        // Cells expected to hold fewer than 5 are pooled.
        let (mut statistic, mut cells, mut rare, mut rare_expected) = (0.0, 0.0, 0.0, 0.0);
        for (to, &count) in counts.iter().enumerate() {
            let mean = n * expected.probability(to as u32);
            assert!(mean > 0.0 || count == 0, "{what}: {to} after {from} is impossible");
            if mean >= 5.0 {
                statistic += (f64::from(count) - mean).powi(2) / mean;
                cells += 1.0;
            } else {
                rare += f64::from(count);
                rare_expected += mean;
            }
        }
        if rare_expected >= 5.0 {
            statistic += (rare - rare_expected).powi(2) / rare_expected;
            cells += 1.0;
        }
        if cells >= 2.0 {
            let limit = chi_square_limit(cells - 1.0);
            assert!(
                statistic < limit,
                "{what}: after {from}, chi-square {statistic} of {n} tokens, limit {limit}"
            );
        }
    }
}

/// Upper quantile at 1e-6 by the Wilson-Hilferty approximation.
fn chi_square_limit(degrees: f64) -> f64 {
    let spread = 2.0 / (9.0 * degrees);
    degrees * (1.0 - spread + Z * spread.sqrt()).powi(3)
}

#[test]
fn sampled_drafts_keep_the_distribution_at_every_depth() {
    let model = Model::new(1, 4.0);
    for correction in [Correction::Pending, Correction::Reforwarded] {
        for depth in 0..=5 {
            let (answer, decoder) =
                run(&model, &[0], config(sampled(depth as u64), depth, false, correction, 30_000));
            assert_distribution(&model, 0, &[answer], sampled(0), &format!("depth {depth} {correction:?}"));
            let stats = decoder.stats();
            assert!(depth == 0 || (stats.rejected > 1000 && stats.bonus > 100), "both outcomes: {stats:?}");
        }
    }
}

#[test]
fn copied_blocks_keep_the_distribution() {
    let model = Model::new(2, 4.0);
    let prompt = prompt(&model);
    let mut rounds = 0;
    // Suspension leaves few blocks in a long answer, so many short ones are judged together.
    let answers: Vec<Vec<u32>> = (0..1000)
        .map(|seed| {
            let (answer, decoder) =
                run(&model, &prompt, config(sampled(seed), 2, true, Correction::Pending, 60));
            rounds += decoder.copy().counters().rounds;
            answer
        })
        .collect();
    assert!(rounds > 3000, "{rounds} blocks");
    assert_distribution(&model, prompt[prompt.len() - 1], &answers, sampled(0), "copied blocks");
}

#[test]
fn a_depth_that_depends_on_confidence_keeps_the_distribution() {
    let model = Model::new(3, 4.0);
    let policy = ExpectedValueDepth::new(DepthSettings::new(3));
    let config = SpeculativeConfig {
        depth: DepthControl::ExpectedValue(policy),
        ..config(sampled(5), 3, false, Correction::Pending, 30_000)
    };
    let (answer, decoder) = run(&model, &[0], config);
    let drafted = &decoder.stats().drafted_by_position;
    assert!(drafted[2] < drafted[1], "the policy stopped some cycles early: {drafted:?}");
    assert_distribution(&model, 0, &[answer], sampled(0), "expected value");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn greedy_output_is_that_of_plain_decoding(
        seed in 0u64..1000,
        noise in 0.0f32..8.0,
        depth in 0usize..=5,
        copy: bool,
        pending: bool,
        presence in prop_oneof![Just(0.0), 0.0f64..1.0],
        max_tokens in 1usize..80,
    ) {
        let model = Model::new(seed, noise);
        let prompt = prompt(&model);
        let greedy = SamplerConfig { presence_penalty: presence, frequency_penalty: presence / 4.0, ..SamplerConfig::default() };
        let correction = if pending { Correction::Pending } else { Correction::Reforwarded };
        let (answer, decoder) = run(&model, &prompt, config(greedy.clone(), depth, copy, correction, max_tokens));
        prop_assert_eq!(&answer, &plain(&model, &prompt, greedy, max_tokens));
        prop_assert_eq!(decoder.tokens().len(), max_tokens);
    }

    #[test]
    fn a_stop_token_ends_the_answer_wherever_it_falls(
        seed in 0u64..1000,
        depth in 0usize..=5,
        copy: bool,
        at in 0usize..40,
    ) {
        let model = Model::new(seed, 1.0);
        let prompt = prompt(&model);
        let greedy = SamplerConfig::default();
        let without = plain(&model, &prompt, greedy.clone(), 40);
        let stop = without[at];
        let expected = &without[..=without.iter().position(|&token| token == stop).unwrap()];
        let config = SpeculativeConfig {
            stop_tokens: vec![stop],
            ..config(greedy, depth, copy, Correction::Pending, 40)
        };
        let mut decoder = SpeculativeDecoder::new(config, &prompt).unwrap();
        let reason = loop {
            if let Some(reason) = step(&model, &prompt, &mut decoder) {
                break reason;
            }
        };
        prop_assert_eq!(decoder.tokens(), expected);
        prop_assert_eq!(reason, FinishReason::Stop);
    }

    #[test]
    fn an_abandoned_cycle_leaves_the_answer_as_it_was(
        seed in 0u64..1000,
        cycles in 0usize..5,
        drafts in 0usize..=3,
    ) {
        let model = Model::new(seed, 2.0);
        let greedy = SamplerConfig::default();
        let mut decoder =
            SpeculativeDecoder::new(config(greedy.clone(), 3, false, Correction::Pending, 60), &[0]).unwrap();
        for _ in 0..cycles {
            step(&model, &[0], &mut decoder);
        }
        let last = *decoder.tokens().last().unwrap_or(&0);
        decoder.begin(&model.target[last as usize]).unwrap();
        for _ in 0..drafts {
            let last = *decoder.window().last().unwrap();
            decoder.draft(&model.head[last as usize]).unwrap();
        }
        decoder.abandon();
        prop_assert!(decoder.window().is_empty());
        prop_assert_eq!(decoder.pending(), decoder.tokens().last().copied());
        while step(&model, &[0], &mut decoder).is_none() {}
        prop_assert_eq!(decoder.tokens(), plain(&model, &[0], greedy, 60));
    }
}

#[test]
fn a_seed_reproduces_and_another_differs() {
    let model = Model::new(4, 3.0);
    let prompt = prompt(&model);
    let answer = |seed| run(&model, &prompt, config(sampled(seed), 3, true, Correction::Pending, 100)).0;
    assert_eq!(answer(7), answer(7));
    assert_ne!(answer(7), answer(8));
}

#[test]
fn depth_can_be_fixed_between_cycles() {
    let model = Model::new(6, 2.0);
    let greedy = SamplerConfig::default();
    let mut decoder =
        SpeculativeDecoder::new(config(greedy.clone(), 3, false, Correction::Pending, 40), &[0]).unwrap();
    step(&model, &[0], &mut decoder);
    decoder.fix_depth(0);
    let drafted = decoder.stats().drafted();
    step(&model, &[0], &mut decoder);
    assert_eq!(decoder.stats().drafted(), drafted);
    decoder.fix_depth(9);
    while step(&model, &[0], &mut decoder).is_none() {}
    assert_eq!(decoder.stats().drafted_by_position.len(), 3);
    assert_eq!(decoder.tokens(), plain(&model, &[0], greedy, 40));
}

#[test]
fn steps_out_of_order_are_refused() {
    let model = Model::new(5, 1.0);
    let mut decoder =
        SpeculativeDecoder::new(config(SamplerConfig::default(), 1, false, Correction::Pending, 9), &[0])
            .unwrap();
    assert!(decoder.draft(&model.head[0]).is_err());
    assert!(decoder.verify(|_| &[], None).is_err());
    decoder.begin(&model.target[0]).unwrap();
    assert!(decoder.begin(&model.target[0]).is_err());
    decoder.draft(&model.head[0]).unwrap();
    assert!(decoder.draft(&model.head[0]).is_err(), "one draft was wanted");
}
