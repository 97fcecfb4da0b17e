//! Speculative decoding is exact: what MTPLX recorded is replayed, distributions are tested, and answers and states are
//! compared with plain decoding.

use ds4_engine::{EngineOptions, LocalEngine, RequestLimits, SessionOptions};
use ds4_models::LoadedModel;
use ds4_sampling::speculative::Correction;
use ds4_testkit::golden;
use ds4_testkit::receipts::{copy, generations, rng, sampler, scripted, speculative};
use ds4_testkit::table_model::{copies_at_depth, drafts_at_depth, drafts_by_confidence};

use crate::report::Report;
use crate::subject::{self, Machine};
use crate::{speculation_head, speculation_states};

const FAMILY: &str = "qwen4_exp";

const VOCABULARY: u32 = 4096;

/// A chi-square test fails below this chance.
const SMALLEST_P: f64 = 1e-6;

pub(crate) fn run(report: &mut Report, short: bool) -> anyhow::Result<()> {
    receipts(report);
    speculation_head::run(report)?;
    let engine = engine(demo()?);
    report.check("whole generations against MTPLX", || {
        let (replayed, left_out) = generations::replay(&engine);
        format!("{replayed} equal; {left_out} sampled ones draw in another order (no capture-commit)")
    });
    report.check("greedy answers, every mode and depth, against plain decoding", || {
        format!("{} equal", generations::greedy_equality(&engine))
    });
    drop(engine);
    distributions(report);
    speculation_states::run(report, short)
}

/// The demo model.
pub(crate) fn demo() -> anyhow::Result<LoadedModel> {
    subject::load(&golden::demo(FAMILY), Machine::best())
}

/// An engine that keeps no states between requests, so that each one starts from nothing.
pub(crate) fn engine(loaded: LoadedModel) -> LocalEngine {
    let sessions = SessionOptions { memory_bytes: 0, disk: None };
    let options = EngineOptions {
        model_id: "demo".to_owned(),
        context: None,
        requests: RequestLimits { parallel: 4, waiting: 4, caches: None },
        sessions,
    };
    LocalEngine::start(loaded, options)
}

/// The sampler's and generator's recordings.
fn receipts(report: &mut Report) {
    let replays: [(&str, fn() -> usize); 8] = [
        ("random streams, seeds", rng::replay),
        ("sampler, cases with 32 draws and the next double", sampler::replay),
        ("acceptance and residuals, pairs of distributions", speculative::pairs),
        ("decisions on copied blocks", speculative::copied_blocks),
        ("context copy, settings", copy::settings),
        ("context copy, entries of the block ladder", copy::ladder),
        ("context copy, matches", copy::matches),
        ("scripted runs of the generator", scripted::replay),
    ];
    for (item, replay) in replays {
        report.check(item, || format!("{} equal", replay()));
    }
}

/// Chi-square tests of the output against the target's distribution.
fn distributions(report: &mut Report) {
    for depth in 1..=5 {
        report.check(&format!("distribution with drafts to depth {depth}"), || {
            let test = drafts_at_depth(depth, Correction::Pending);
            plausible(test.p_value(), test.samples)
        });
    }
    for depth in 1..=5 {
        report.check(&format!("distribution with copied blocks and drafts to depth {depth}"), || {
            let (test, blocks) = copies_at_depth(depth);
            format!("{}, {blocks} blocks", plausible(test.p_value(), test.samples))
        });
    }
    report.check("distribution with a depth that follows the head's confidence", || {
        let test = drafts_by_confidence();
        plausible(test.p_value(), test.samples)
    });
}

fn plausible(p: f64, samples: u64) -> String {
    let figure = format!("chi-square p = {p:.3} over {samples} tokens");
    assert!(p > SMALLEST_P, "{figure}");
    figure
}

/// Tokens of the demo model without any pattern.
pub(crate) fn pseudo_random(count: usize) -> Vec<u32> {
    let step = |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    let states = std::iter::successors(Some(1u64), step).skip(1).take(count);
    states.map(|state| (state >> 33) as u32 % VOCABULARY).collect()
}
