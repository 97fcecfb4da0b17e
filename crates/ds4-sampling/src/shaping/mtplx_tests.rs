//! Tests of the MTPLX rules against a slow reading that sorts the whole vocabulary, and of edge cases.

use crate::{SamplerConfig, SamplingError, Shaper, SparseDistribution, TokenCounts};
use proptest::prelude::*;

fn shaped(row: &[f32], config: SamplerConfig) -> Result<SparseDistribution, SamplingError> {
    Shaper::new(config)?.shape(row, &TokenCounts::default()).cloned()
}

fn config(temperature: f64, top_k: u32, top_p: f64, min_p: f64) -> SamplerConfig {
    SamplerConfig { temperature, top_k, top_p, min_p, ..SamplerConfig::default() }
}

/// The definition: softmax of everything, sort of everything, three sets, their intersection, one normalisation.
fn slow(row: &[f32], config: &SamplerConfig) -> Vec<(u32, f64)> {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> =
        row.iter().map(|&logit| ((f64::from(logit) - f64::from(max)) / config.temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|&a, &b| (row[b] + 0.0).total_cmp(&(row[a] + 0.0)).then(a.cmp(&b)));
    let mut kept = vec![true; row.len()];
    let mut before = 0.0;
    for (rank, &id) in order.iter().enumerate() {
        let in_top_p = !(0.0 < config.top_p && config.top_p < 1.0) || before < config.top_p;
        let in_top_k = config.top_k == 0 || rank < config.top_k as usize;
        let in_min_p = weights[id] >= config.min_p;
        kept[id] = in_top_p && in_top_k && in_min_p && weights[id] > 0.0;
        before += weights[id] / total;
    }
    let mass: f64 = (0..row.len()).filter(|&id| kept[id]).map(|id| weights[id]).sum();
    (0..row.len()).filter(|&id| kept[id]).map(|id| (id as u32, weights[id] / mass)).collect()
}

fn logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        // A coarse grid, as bfloat16 logits have, makes ties at every cut.
        4 => (-64i16..64).prop_map(|v| f32::from(v) / 4.0),
        4 => -30.0f32..30.0,
        1 => Just(-0.0f32),
        1 => Just(f32::NEG_INFINITY),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn partial_selection_equals_the_slow_definition(
        row in prop::collection::vec(logit(), 1..500),
        temperature in prop_oneof![0.05f64..3.0, Just(1.0), Just(1e-9)],
        top_k in prop_oneof![Just(0u32), 1u32..60, Just(100_000)],
        top_p in prop_oneof![Just(0.0), Just(1.0), 0.01f64..1.0],
        min_p in prop_oneof![Just(0.0), 0.0f64..1.0],
    ) {
        prop_assume!(row.iter().any(|logit| logit.is_finite()));
        let config = config(temperature, top_k, top_p, min_p);
        let expected = slow(&row, &config);
        let found = shaped(&row, config).unwrap();
        prop_assert_eq!(found.ids(), expected.iter().map(|entry| entry.0).collect::<Vec<_>>());
        for (p, (_, q)) in found.probs().iter().zip(expected) {
            prop_assert!((p - q).abs() < 1e-12, "{} {}", p, q);
        }
    }
}

#[test]
fn tiny_temperatures_put_all_mass_on_the_maxima() {
    for temperature in [1e-9, 1e-200, f64::MIN_POSITIVE, 5e-324] {
        for (top_k, top_p) in [(0, 1.0), (0, 0.95), (2, 0.95)] {
            let found = shaped(&[1.0, 3.0, 2.0, -1e38], config(temperature, top_k, top_p, 0.0)).unwrap();
            assert_eq!((found.ids(), found.probs()), (&[1][..], &[1.0][..]), "{temperature:e}");
        }
    }
}

#[test]
fn a_huge_temperature_is_uniform() {
    let found = shaped(&[1.0, 30.0, -30.0], config(1e300, 0, 1.0, 0.0)).unwrap();
    assert!(found.probs().iter().all(|p| (p - 1.0 / 3.0).abs() < 1e-12));
}

#[test]
fn min_p_one_keeps_the_maxima_only() {
    assert_eq!(shaped(&[1.0, 3.0, 3.0], config(1.0, 0, 1.0, 1.0)).unwrap().ids(), [1, 2]);
}

#[test]
fn a_shaper_is_unchanged_by_the_rows_it_has_seen() {
    let mut shaper = Shaper::new(config(0.8, 5, 0.9, 0.0)).unwrap();
    let long: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1000) as f32 / 100.0).collect();
    let counts = TokenCounts::default();
    let first = shaper.shape(&long, &counts).unwrap().clone();
    shaper.shape(&[1.0, 2.0], &counts).unwrap();
    assert!(shaper.shape(&[f32::NAN], &counts).is_err());
    assert_eq!(shaper.shape(&long, &counts).unwrap(), &first);
}
