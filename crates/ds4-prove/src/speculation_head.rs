//! The draft head against MTPLX's recording of it: history, recursive drafts, and the trunk's check of them.

use anyhow::Context;
use ds4_array::{Array, eval, ops};
use ds4_models::{BatchSegment, CausalLm, DraftHead, LogitRows, SequenceCache};
use ds4_testkit::comparison::Matrix;
use ds4_testkit::golden::{self, TensorFile};
use ds4_testkit::tolerance::{WeightStorage, logits};

use crate::report::Report;
use crate::speculation::demo;

/// Tokens before the first draft's round.
const HISTORY: usize = 32;

/// The token before the drafts of each round, from the recording's metadata.
const PRIMARIES: [u32; 3] = [330, 289, 22];

const DRAFTS: usize = 3;

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let recording = TensorFile::open(&golden::root().join("mtplx_receipts/mtp.safetensors"))?;
    let loaded = demo()?;
    let model = &*loaded.model;
    let head = model.draft_head().context("the demo model has no draft head")?;
    let limit = logits(WeightStorage::F32);
    let mut close = |item: &str, name: &str, actual: &Array| -> anyhow::Result<()> {
        report.close(item, &recording.floats(name)?, &matrix(actual), limit);
        Ok(())
    };

    let ids = recording.token_ids("ids")?;
    let mut cache = model.new_cache();
    let (_, streams) = trunk(model, &ids, &mut cache)?;
    close("streams of the trunk, which the head reads", "wide", &streams)?;

    let mut history = head.new_cache();
    let known = ops::slice_rows(&streams, 0, HISTORY)?;
    let out = append(&*head, &known, &ids[1..=HISTORY], &mut history)?;
    close("draft head, history", "history.wide_out", &out)?;

    let mut newest = ops::slice_rows(&streams, HISTORY, 1)?;
    for (round, primary) in PRIMARIES.into_iter().enumerate() {
        let (mut branch, mut from, mut window) = (history.clone(), newest.clone(), vec![primary]);
        let mut rows = Vec::new();
        for _ in 0..DRAFTS {
            from = append(&*head, &from, &window[window.len() - 1..], &mut branch)?;
            let row = head.logits(&from)?;
            window.push(argmax(&row.to_vec::<f32>()?));
            rows.push(row);
        }
        let rows = ops::concatenate(&rows.iter().collect::<Vec<_>>(), 0)?;
        close(&format!("draft head, drafts of round {round}"), &format!("round{round}.draft_logits"), &rows)?;

        let (checked, streams) = trunk(model, &window, &mut cache)?;
        close(&format!("trunk, check of round {round}"), &format!("round{round}.verify_logits"), &checked)?;

        // Every draft was accepted in the recording: the history goes on with the trunk's streams.
        let pairs = ops::concatenate(&[&newest, &ops::slice_rows(&streams, 0, DRAFTS)?], 0)?;
        append(&*head, &pairs, &window, &mut history)?;
        newest = ops::slice_rows(&streams, DRAFTS, 1)?;
    }
    Ok(())
}

fn trunk(model: &dyn CausalLm, tokens: &[u32], cache: &mut SequenceCache) -> anyhow::Result<(Array, Array)> {
    let out = model.forward(&mut [BatchSegment { tokens, cache, logits: LogitRows::All }])?;
    Ok((out.logits.context("no logits")?, out.streams.context("no streams")?))
}

fn append(
    head: &dyn DraftHead,
    streams: &Array,
    next: &[u32],
    cache: &mut SequenceCache,
) -> anyhow::Result<Array> {
    let out = head.build(streams, next, cache)?;
    let mut arrays = cache.pending();
    arrays.push(out.clone());
    eval(&arrays.iter().collect::<Vec<_>>())?;
    Ok(out)
}

/// The largest value's index, the lowest of equals.
fn argmax(row: &[f32]) -> u32 {
    (0..).zip(row).max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0))).map_or(0, |(index, _)| index)
}

fn matrix(array: &Array) -> anyhow::Result<Matrix> {
    let columns = array.shape()[array.shape().len() - 1];
    Ok(Matrix::new(columns, array.to_vec::<f32>()?))
}
