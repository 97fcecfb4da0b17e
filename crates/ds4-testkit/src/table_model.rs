//! A model that is a table: the logits after a token depend on that token only, for target and draft head alike.
//!
//! So the tokens that follow each token are independent draws from a known distribution, which a chi-square test can
//! check whatever way they were decoded.
#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use ds4_sampling::speculative::{
    Correction, DepthControl, DepthSettings, ExpectedValueDepth, FinishReason, NextRow, Plan,
    SpeculativeConfig, SpeculativeDecoder,
};
use ds4_sampling::{CopySettings, Sampler, SamplerConfig, Shaper, TokenCounts};

use crate::chi_square::ChiSquare;

/// Tokens of the table.
pub const VOCABULARY: usize = 12;

/// Logits by previous token.
#[derive(Debug, Clone)]
pub struct TableModel {
    /// The target's rows.
    pub target: Vec<Vec<f32>>,
    /// The draft head's rows.
    pub head: Vec<Vec<f32>>,
}

impl TableModel {
    /// Pseudo-random logits; the head is the target with `noise`.
    pub fn new(seed: u64, noise: f32) -> Self {
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

    /// A prompt in which most pairs of tokens occur, so that blocks are copied and often rejected.
    pub fn prompt(&self) -> Vec<u32> {
        self.plain(&[0], sampled(99), 400)
    }

    /// An answer decoded one token at a time, without a speculative decoder.
    pub fn plain(&self, prompt: &[u32], config: SamplerConfig, max_tokens: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(config).unwrap();
        let mut text = prompt.to_vec();
        for _ in 0..max_tokens {
            let token = sampler.sample(&self.target[text[text.len() - 1] as usize]).unwrap();
            sampler.record(token);
            text.push(token);
        }
        text.split_off(prompt.len())
    }

    /// Runs a decoder to its end and returns the answer.
    pub fn run(&self, prompt: &[u32], config: SpeculativeConfig) -> (Vec<u32>, SpeculativeDecoder) {
        let mut decoder = SpeculativeDecoder::new(config, prompt).unwrap();
        while self.step(prompt, &mut decoder).is_none() {}
        (decoder.tokens().to_vec(), decoder)
    }

    /// One cycle of a decoder.
    pub fn step(&self, prompt: &[u32], decoder: &mut SpeculativeDecoder) -> Option<FinishReason> {
        let last = *decoder.tokens().last().unwrap_or(&prompt[prompt.len() - 1]);
        match decoder.begin(&self.target[last as usize]).unwrap() {
            Plan::Finished(reason) => return Some(reason),
            Plan::Copy { .. } => {}
            Plan::Draft { depth, .. } => {
                let mut more = depth > 0;
                while more {
                    let last = *decoder.window().last().unwrap();
                    more = decoder.draft(&self.head[last as usize]).unwrap().more;
                }
            }
        }
        let window = decoder.window().to_vec();
        let outcome = decoder.verify(|row| &self.target[window[row] as usize], None).unwrap();
        assert_eq!(outcome.keep, outcome.accepted + 1);
        assert_eq!(outcome.next_row == NextRow::None, decoder.pending().is_some());
        None
    }

    /// Tests whether the tokens that follow each token are draws from the target's distribution. `first` comes before each
    /// answer.
    fn test(&self, first: u32, answers: &[Vec<u32>]) -> ChiSquare {
        let mut counts = vec![[0u64; VOCABULARY]; VOCABULARY];
        for answer in answers {
            let previous = std::iter::once(&first).chain(answer);
            previous.zip(answer).for_each(|(&from, &to)| counts[from as usize][to as usize] += 1);
        }
        let mut shaper = Shaper::new(sampled(0)).unwrap();
        let mut all = ChiSquare::default();
        for (from, counts) in counts.iter().enumerate() {
            let expected = shaper.shape(&self.target[from], &TokenCounts::default()).unwrap();
            let probabilities: Vec<f64> = (0..VOCABULARY as u32).map(|to| expected.probability(to)).collect();
            all.add(counts, &probabilities);
        }
        all
    }
}

/// Sampling that filters a part of the tokens.
pub fn sampled(seed: u64) -> SamplerConfig {
    SamplerConfig { temperature: 1.0, top_p: 0.95, top_k: 8, seed, ..SamplerConfig::default() }
}

/// A decoder's configuration; copying looks for pairs, which the small vocabulary has many of.
pub fn config(
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

/// The output with drafts of a head that is often wrong. Panics unless drafts were rejected and accepted.
pub fn drafts_at_depth(depth: usize, correction: Correction) -> ChiSquare {
    let model = TableModel::new(1, 4.0);
    let config = config(sampled(depth as u64), depth, false, correction, 30_000);
    let (answer, decoder) = model.run(&[0], config);
    let stats = decoder.stats();
    assert!(depth == 0 || (stats.rejected > 1000 && stats.bonus > 100), "both outcomes: {stats:?}");
    model.test(0, &[answer])
}

/// The output with blocks copied from the prompt, between drafts to `depth`. Returns the number of blocks, too.
///
/// Suspension leaves few blocks in a long answer, so many short ones are judged together.
pub fn copies_at_depth(depth: usize) -> (ChiSquare, u64) {
    let model = TableModel::new(2, 4.0);
    let prompt = model.prompt();
    let mut rounds = 0;
    let answers: Vec<Vec<u32>> = (0..1000)
        .map(|seed| {
            let (answer, decoder) =
                model.run(&prompt, config(sampled(seed), depth, true, Correction::Pending, 60));
            rounds += decoder.copy().counters().rounds;
            answer
        })
        .collect();
    (model.test(prompt[prompt.len() - 1], &answers), rounds)
}

/// The output when the depth depends on the head's confidence. Panics unless that ended some windows early.
pub fn drafts_by_confidence() -> ChiSquare {
    let model = TableModel::new(3, 4.0);
    let policy = ExpectedValueDepth::new(DepthSettings::new(3));
    let config = SpeculativeConfig {
        depth: DepthControl::ExpectedValue(policy),
        ..config(sampled(5), 3, false, Correction::Pending, 30_000)
    };
    let (answer, decoder) = model.run(&[0], config);
    let drafted = &decoder.stats().drafted_by_position;
    assert!(drafted[2] < drafted[1], "the policy stopped some cycles early: {drafted:?}");
    model.test(0, &[answer])
}
