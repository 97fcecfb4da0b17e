//! What MTPLX recorded is replayed: decisions, tokens and random streams are equal. The replays are in `ds4-testkit`.

use ds4_testkit::receipts::{copy, rng, sampler, scripted, speculative};

#[test]
fn seeding_and_every_kind_of_draw_are_numpys() {
    assert_eq!(rng::replay(), 13);
}

#[test]
fn distributions_draws_and_errors_of_the_sampler() {
    assert_eq!(sampler::replay(), 240);
}

#[test]
fn acceptance_and_residuals_of_pairs_of_distributions() {
    assert_eq!(speculative::pairs(), 16);
}

#[test]
fn decisions_on_copied_blocks() {
    assert_eq!(speculative::copied_blocks(), 48);
}

#[test]
fn copy_settings_are_repaired_as_by_the_reference() {
    assert_eq!(copy::settings(), 10);
}

#[test]
fn longer_matches_earn_longer_blocks() {
    assert!(copy::ladder() > 0);
}

#[test]
fn the_best_match_is_found() {
    assert_eq!(copy::matches(), 42);
}

#[test]
fn scripted_runs_of_the_generator() {
    assert_eq!(scripted::replay(), 24);
}
