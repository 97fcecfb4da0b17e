//! `speculative.jsonl`: acceptance, residuals and decisions of 16 pairs of distributions, and 48 copied blocks.
//!
//! Decisions and random streams are equal. Residual probabilities agree to 1e-15 (the reference normalises once more).

use super::files::{Fields, records, tensors};
use ds4_sampling::speculative::{
    Draft, Proposal, TargetRows, acceptance_probability, residual, verify_drafts,
};
use ds4_sampling::{
    RandomStream, SamplerConfig, SamplerRule, SamplingError, Shaper, SparseDistribution, TokenCounts,
};
use serde_json::Value;

fn distribution(value: &Value) -> SparseDistribution {
    let probs = value.f64s("probs");
    let (ids, vocabulary) = if value["ids"].is_array() {
        (value.ids("ids"), value.u64("vocab") as usize)
    } else {
        ((0..probs.len() as u32).collect(), probs.len())
    };
    SparseDistribution::new(ids, probs, vocabulary).unwrap()
}

struct OneRow(SparseDistribution);

impl TargetRows for OneRow {
    fn distribution(&mut self, _row: usize) -> Result<&SparseDistribution, SamplingError> {
        Ok(&self.0)
    }
}

/// Acceptance, residuals and decisions of pairs of distributions. Returns the number of pairs.
pub fn pairs() -> usize {
    let records: Vec<Value> =
        records("speculative.jsonl").into_iter().filter(|record| record.text("kind") == "pair").collect();
    assert_eq!(records.len(), 16);
    for record in &records {
        let (name, p, q) = (record.text("name"), distribution(&record["p"]), distribution(&record["q"]));
        let close = |a: f64, b: f64| assert!((a - b).abs() <= 1e-15, "{name}: {a} {b}");
        for (token, expected) in (0..).zip(record.f64s("accept")) {
            close(acceptance_probability(&p, &q, token), expected);
        }
        let (found, expected) = (residual(&p, &q), distribution(&record["residual"]));
        assert_eq!(found.ids(), expected.ids(), "{name}");
        found.probs().iter().zip(expected.probs()).for_each(|(&a, &b)| close(a, b));
        for run in record.list("runs") {
            assert_run(run, &p, &q);
        }
    }
    records.len()
}

/// Every step draws a token from q, but for each fourth, where the token is given; then it is verified.
fn assert_run(run: &Value, p: &SparseDistribution, q: &SparseDistribution) {
    let seed = run.u64("seed");
    let mut stream = RandomStream::for_rule(SamplerRule::Mtplx, seed);
    let mut rows = OneRow(p.clone());
    for (i, step) in (0u64..).zip(run.list("steps")) {
        let token =
            if i % 4 == 0 { ((7 * i + seed) % p.vocabulary() as u64) as u32 } else { q.draw(&mut stream) };
        assert_eq!(u64::from(token), step[0].as_u64().unwrap());
        let draft = Draft { token, proposal: Proposal::Drawn(q.clone()) };
        let verdict = verify_drafts(&[draft], &mut rows, &mut stream, |_| false).unwrap();
        assert_eq!(verdict.accepted == 1, step[1].as_bool().unwrap());
        assert_eq!(u64::from(verdict.correction.unwrap_or(token)), step[2].as_u64().unwrap());
        assert!((verdict.probabilities[0] - step[3].as_f64().unwrap()).abs() <= 1e-15);
    }
    assert_eq!(stream.uniform(), run.f64("next"));
}

struct BlockRows<'a>(&'a [f32], Shaper);

impl TargetRows for BlockRows<'_> {
    fn distribution(&mut self, row: usize) -> Result<&SparseDistribution, SamplingError> {
        self.1.shape(&self.0[row * 64..(row + 1) * 64], &TokenCounts::default())
    }
}

/// Decisions on copied blocks. Returns the number of blocks.
pub fn copied_blocks() -> usize {
    let rows = &tensors("speculative_rows.safetensors")["point_block_rows"];
    let mut seen = 0;
    for record in records("speculative.jsonl").iter().filter(|record| record.text("kind") == "point_block") {
        let config = SamplerConfig {
            temperature: record.f64("temperature"),
            top_p: record.f64("top_p"),
            top_k: record.u64("top_k") as u32,
            ..SamplerConfig::default()
        };
        let mut target = BlockRows(rows, Shaper::new(config).unwrap());
        let mut stream = RandomStream::for_rule(SamplerRule::Mtplx, record.u64("seed"));
        let block: Vec<Draft> =
            record.ids("block").into_iter().map(|token| Draft { token, proposal: Proposal::Point }).collect();
        let verdict = verify_drafts(&block, &mut target, &mut stream, |_| false).unwrap();
        assert_eq!(verdict.accepted as u64, record.u64("accepted"));
        assert_eq!(verdict.correction.map(u64::from), record["correction"].as_u64());
        assert_eq!(stream.uniform(), record.f64("next"));
        seen += 1;
    }
    assert_eq!(seen, 48);
    seen
}
