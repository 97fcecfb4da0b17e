//! What a speculative decoder puts out is what plain decoding would: token by token if greedy, in distribution if not.

// A helper of a test may panic like the test itself.
#![allow(clippy::unwrap_used)]

use ds4_sampling::SamplerConfig;
use ds4_sampling::speculative::{Correction, FinishReason, Plan, SpeculativeConfig, SpeculativeDecoder};
use ds4_testkit::chi_square::ChiSquare;
use ds4_testkit::table_model::{
    TableModel, config, copies_at_depth, drafts_at_depth, drafts_by_confidence, sampled,
};
use proptest::prelude::*;

/// A right decoder fails a test with this chance.
const SMALLEST_P: f64 = 1e-6;

fn assert_plausible(test: ChiSquare, what: &str) {
    assert!(test.p_value() > SMALLEST_P, "{what}: {test:?}, p = {:e}", test.p_value());
}

#[test]
fn sampled_drafts_keep_the_distribution_at_every_depth() {
    for correction in [Correction::Pending, Correction::Reforwarded] {
        for depth in 0..=5 {
            assert_plausible(drafts_at_depth(depth, correction), &format!("depth {depth} {correction:?}"));
        }
    }
}

#[test]
fn copied_blocks_keep_the_distribution_at_every_depth() {
    for depth in 1..=5 {
        let (test, blocks) = copies_at_depth(depth);
        assert!(blocks > 2000, "{blocks} blocks");
        assert_plausible(test, &format!("copied blocks, depth {depth}"));
    }
}

#[test]
fn a_depth_that_depends_on_confidence_keeps_the_distribution() {
    assert_plausible(drafts_by_confidence(), "expected value");
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
        let model = TableModel::new(seed, noise);
        let prompt = model.prompt();
        let greedy = SamplerConfig { presence_penalty: presence, frequency_penalty: presence / 4.0, ..SamplerConfig::default() };
        let correction = if pending { Correction::Pending } else { Correction::Reforwarded };
        let (answer, decoder) = model.run(&prompt, config(greedy.clone(), depth, copy, correction, max_tokens));
        prop_assert_eq!(&answer, &model.plain(&prompt, greedy, max_tokens));
        prop_assert_eq!(decoder.tokens().len(), max_tokens);
    }

    #[test]
    fn a_held_block_is_checked_where_drafts_lead_to_it(
        seed in 0u64..1000,
        noise in 0.0f32..8.0,
        depth in 1usize..=5,
        asked in 0usize..=5,
        max_tokens in 1usize..80,
    ) {
        let model = TableModel::new(seed, noise);
        let prompt = model.prompt();
        let greedy = SamplerConfig::default();
        let config = config(greedy.clone(), depth, true, Correction::Pending, max_tokens);
        let mut decoder = SpeculativeDecoder::new(config, &prompt).unwrap();
        loop {
            let last = *decoder.tokens().last().unwrap_or(&prompt[prompt.len() - 1]);
            let plan = decoder.begin(&model.target[last as usize]).unwrap();
            if matches!(plan, Plan::Finished(_)) {
                break;
            }
            let block = decoder.window().to_vec();
            let wanted = decoder.hold_block();
            prop_assert_eq!(wanted > 0, matches!(plan, Plan::Copy { .. }));
            for _ in 0..wanted.min(asked) {
                let last = *decoder.window().last().unwrap();
                decoder.draft(&model.head[last as usize]).unwrap();
            }
            let drafts = decoder.window().to_vec();
            decoder.release_block();
            let rounds = decoder.copy().counters().rounds;
            let window = decoder.window().to_vec();
            let confirmed = wanted > 0 && block.len() > drafts.len() && block.starts_with(&drafts);
            prop_assert_eq!(&window, if confirmed { &block } else { &drafts });
            decoder.verify(|row| &model.target[window[row] as usize], None).unwrap();
            prop_assert_eq!(decoder.copy().counters().rounds - rounds, u64::from(confirmed));
        }
        prop_assert_eq!(decoder.tokens(), model.plain(&prompt, greedy, max_tokens));
    }

    #[test]
    fn a_stop_token_ends_the_answer_wherever_it_falls(
        seed in 0u64..1000,
        depth in 0usize..=5,
        copy: bool,
        at in 0usize..40,
    ) {
        let model = TableModel::new(seed, 1.0);
        let prompt = model.prompt();
        let greedy = SamplerConfig::default();
        let without = model.plain(&prompt, greedy.clone(), 40);
        let stop = without[at];
        let expected = &without[..=without.iter().position(|&token| token == stop).unwrap()];
        let config = SpeculativeConfig {
            stop_tokens: vec![stop],
            ..config(greedy, depth, copy, Correction::Pending, 40)
        };
        let mut decoder = SpeculativeDecoder::new(config, &prompt).unwrap();
        let reason = loop {
            if let Some(reason) = model.step(&prompt, &mut decoder) {
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
        let model = TableModel::new(seed, 2.0);
        let greedy = SamplerConfig::default();
        let mut decoder =
            SpeculativeDecoder::new(config(greedy.clone(), 3, false, Correction::Pending, 60), &[0]).unwrap();
        for _ in 0..cycles {
            model.step(&[0], &mut decoder);
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
        while model.step(&[0], &mut decoder).is_none() {}
        prop_assert_eq!(decoder.tokens(), model.plain(&[0], greedy, 60));
    }
}

#[test]
fn a_seed_reproduces_and_another_differs() {
    let model = TableModel::new(4, 3.0);
    let prompt = model.prompt();
    let answer = |seed| model.run(&prompt, config(sampled(seed), 3, true, Correction::Pending, 100)).0;
    assert_eq!(answer(7), answer(7));
    assert_ne!(answer(7), answer(8));
}

#[test]
fn depth_can_be_fixed_between_cycles() {
    let model = TableModel::new(6, 2.0);
    let greedy = SamplerConfig::default();
    let mut decoder =
        SpeculativeDecoder::new(config(greedy.clone(), 3, false, Correction::Pending, 40), &[0]).unwrap();
    model.step(&[0], &mut decoder);
    decoder.fix_depth(0);
    let drafted = decoder.stats().drafted();
    model.step(&[0], &mut decoder);
    assert_eq!(decoder.stats().drafted(), drafted);
    decoder.fix_depth(9);
    while model.step(&[0], &mut decoder).is_none() {}
    assert_eq!(decoder.stats().drafted_by_position.len(), 3);
    assert_eq!(decoder.tokens(), model.plain(&[0], greedy, 40));
}

#[test]
fn steps_out_of_order_are_refused() {
    let model = TableModel::new(5, 1.0);
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
