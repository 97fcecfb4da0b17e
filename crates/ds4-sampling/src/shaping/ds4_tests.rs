//! Tests of the ds4 rules: the bounded selection against a full sort, and each rule on a small row.

use super::*;
use crate::{RandomStream, SamplerRule, Shaper, SparseDistribution, TokenCounts};
use proptest::prelude::*;

fn config(temperature: f64, top_k: u32, top_p: f64, min_p: f64) -> SamplerConfig {
    SamplerConfig { temperature, top_k, top_p, min_p, rule: SamplerRule::Ds4, ..SamplerConfig::default() }
}

fn shaped(row: &[f32], config: SamplerConfig) -> SparseDistribution {
    Shaper::new(config).unwrap().shape(row, &TokenCounts::default()).unwrap().clone()
}

/// A row of the logarithms of the given weights.
fn logs(weights: &[f32]) -> Vec<f32> {
    weights.iter().map(|weight| weight.ln()).collect()
}

fn work() -> Work {
    Shaper::new(config(1.0, 0, 1.0, 0.0)).unwrap().work
}

#[test]
fn top_p_counts_within_top_k() {
    // 0.4 of 0.7 is past 0.5, although 0.4 of the whole row is not.
    let row = logs(&[0.4, 0.3, 0.3]);
    assert_eq!(shaped(&row, config(1.0, 2, 0.5, 0.0)).ids(), [0]);
    assert_eq!(shaped(&row, config(1.0, 0, 0.5, 0.0)).ids(), [0, 1]);
}

#[test]
fn the_token_that_reaches_top_p_stays() {
    assert_eq!(shaped(&logs(&[0.1, 0.5, 0.4]), config(1.0, 0, 0.6, 0.0)).ids(), [1, 2]);
}

#[test]
fn min_p_is_relative_to_the_largest() {
    let row = logs(&[0.5, 0.2, 0.04, 0.26]);
    for top_k in [0, 4] {
        assert_eq!(shaped(&row, config(1.0, top_k, 1.0, 0.3)).ids(), [0, 1, 3], "top_k {top_k}");
    }
}

#[test]
fn top_p_zero_is_no_filter_and_top_k_is_limited() {
    let row: Vec<f32> = (0..3000).map(|i| (i % 7) as f32 * 1e-3).collect();
    assert_eq!(shaped(&row, config(1.0, 0, 0.0, 0.0)).ids().len(), 3000);
    assert_eq!(shaped(&row, config(1.0, 2000, 1.0, 0.0)).ids().len(), MAX_TOP_K);
}

#[test]
fn equal_logits_at_a_cut_keep_the_lower_id() {
    assert_eq!(shaped(&[0.0, 1.0, 1.0, 1.0], config(1.0, 2, 1.0, 0.0)).ids(), [1, 2]);
    assert_eq!(shaped(&[0.0, 9.0, 9.0, 9.0], config(1.0, 0, 0.5, 0.0)).ids(), [1, 2]);
}

#[test]
fn a_tiny_temperature_draws_the_maximum() {
    let mut stream = RandomStream::for_rule(SamplerRule::Ds4, 1);
    for temperature in [1e-9, 1e-60] {
        for (top_k, top_p) in [(0, 1.0), (0, 0.9), (2, 0.9)] {
            let drawn =
                draw(&[0.0, 2.0, 1.0], &config(temperature, top_k, top_p, 0.0), &mut work(), &mut stream);
            assert_eq!(drawn, Ok(1));
        }
    }
}

#[test]
fn draws_follow_the_distribution_of_shape() {
    let row = logs(&[0.1, 0.3, 0.05, 0.25, 0.3]);
    let config = config(1.0, 0, 0.9, 0.0);
    let expected = shaped(&row, config.clone());
    let mut stream = RandomStream::for_rule(SamplerRule::Ds4, 5);
    let mut work = work();
    let mut counts = [0u32; 5];
    for _ in 0..40_000 {
        counts[draw(&row, &config, &mut work, &mut stream).unwrap() as usize] += 1;
    }
    for (id, &count) in (0..).zip(&counts) {
        assert!((f64::from(count) / 40_000.0 - expected.probability(id)).abs() < 0.015, "{id}: {count}");
    }
}

proptest! {
    #[test]
    fn the_bounded_candidates_give_the_result_of_a_full_sort(
        row in prop::collection::vec((-40i8..40).prop_map(|v| f32::from(v) / 8.0), 1..400),
        (top_p, min_p) in (0.05f64..1.0, prop_oneof![Just(0.0), 0.0f64..0.5]),
        bounded in 1usize..64,
        temperature in 0.3f64..2.0,
    ) {
        let config = config(temperature, 0, top_p, min_p);
        let (mut few, mut all) = (work(), work());
        let kept_few = keep(&row, &config, &mut few, &[bounded, usize::MAX]).unwrap();
        let kept_all = keep(&row, &config, &mut all, &[usize::MAX]).unwrap();
        prop_assert_eq!(few.candidates, all.candidates);
        prop_assert_eq!(kept_few.sum, kept_all.sum);
        prop_assert_eq!(kept_few.fallback, kept_all.fallback);
    }

    #[test]
    fn a_slow_reading_of_the_rules_keeps_the_same_tokens(
        row in prop::collection::vec((-40i8..40).prop_map(|v| f32::from(v) / 8.0), 1..300),
        top_k in 0u32..40,
        top_p in prop_oneof![Just(1.0), 0.05f64..1.0],
        min_p in prop_oneof![Just(0.0), 0.0f64..0.5],
    ) {
        let found = shaped(&row, config(0.8, top_k, top_p, min_p));
        prop_assert_eq!(found.ids(), slow_support(&row, 0.8, top_k as usize, top_p as f32, min_p as f32));
    }
}

fn slow_support(row: &[f32], temperature: f32, top_k: usize, top_p: f32, min_p: f32) -> Vec<u32> {
    let max = row.iter().copied().fold(f32::MIN, f32::max);
    let mut list: Vec<(u32, f32, f32)> =
        (0..).zip(row).map(|(id, &logit)| (id, logit, ((logit - max) / temperature).exp())).collect();
    let whole_sum: f32 = list.iter().map(|entry| entry.2).sum();
    list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if top_k > 0 {
        list.truncate(top_k);
    }
    let sum = if top_k > 0 { list.iter().map(|entry| entry.2).sum() } else { whole_sum };
    if top_k == 0 && top_p >= 1.0 {
        list.retain(|entry| entry.2 >= min_p);
    } else {
        let smallest = list[0].2 / sum * min_p;
        let mut kept = 0.0;
        let mut end = 0;
        for (index, entry) in list.iter().enumerate() {
            if index > 0 && entry.2 / sum < smallest {
                break;
            }
            kept += entry.2;
            end = index + 1;
            if kept / sum >= top_p {
                break;
            }
        }
        list.truncate(end);
    }
    let mut ids: Vec<u32> = list.iter().map(|entry| entry.0).collect();
    ids.sort_unstable();
    ids
}
