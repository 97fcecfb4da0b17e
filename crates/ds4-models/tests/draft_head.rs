//! The draft head against MTPLX's recording of it (golden/mtplx_receipts/mtp.safetensors): history, recursive drafts, and
//! the trunk's check of them.
#![allow(clippy::unwrap_used, reason = "tests only")]

mod common;

use common::{folder, load};
use ds4_array::{Array, eval, ops};
use ds4_models::{BatchSegment, CausalLm, DraftHead, LogitRows, SequenceCache};
use ds4_testkit::comparison::assert_close;
use ds4_testkit::golden::TensorFile;
use ds4_testkit::tolerance::{WeightStorage, logits};

/// Prefix tokens, and of each round the token before the drafts, from the recording's metadata.
const ROUNDS: [(usize, u32); 3] = [(32, 330), (36, 289), (40, 22)];

struct Recording(TensorFile);

impl Recording {
    fn values(&self, name: &str) -> Vec<f32> {
        self.0.floats(name).unwrap().values
    }
}

fn near(actual: &Array, expected: &[f32]) {
    assert_close(expected, &actual.to_vec::<f32>().unwrap(), logits(WeightStorage::F32));
}

/// Appends history to the head's cache and returns the head's streams.
fn append(head: &dyn DraftHead, streams: &Array, next: &[u32], cache: &mut SequenceCache) -> Array {
    let out = head.build(streams, next, cache).unwrap();
    let mut arrays = cache.pending();
    arrays.push(out.clone());
    eval(&arrays.iter().collect::<Vec<_>>()).unwrap();
    out
}

fn argmax(row: &[f32]) -> u32 {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0))).unwrap();
    best.0 as u32
}

/// Drafts three tokens after `primary`, each from the head's own streams; returns them, their logits and the last streams.
fn draft(
    head: &dyn DraftHead,
    from: &Array,
    primary: u32,
    cache: &SequenceCache,
) -> (Vec<u32>, Vec<f32>, Array) {
    let (mut cache, mut streams, mut token) = (cache.clone(), from.clone(), primary);
    let (mut drafts, mut rows) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        streams = append(head, &streams, &[token], &mut cache);
        let row = head.logits(&streams).unwrap().to_vec::<f32>().unwrap();
        token = argmax(&row);
        drafts.push(token);
        rows.extend(row);
    }
    (drafts, rows, streams)
}

fn trunk(model: &dyn CausalLm, tokens: &[u32], cache: &mut SequenceCache) -> (Array, Array) {
    let out = model.forward(&mut [BatchSegment { tokens, cache, logits: LogitRows::All }]).unwrap();
    (out.logits.unwrap(), out.streams.unwrap())
}

#[test]
fn history_and_drafts_equal_the_recording() {
    let loaded = load("demo/qwen4_exp");
    let (model, head) = (&*loaded.model, loaded.model.draft_head().unwrap());
    let recording = Recording(TensorFile::open(&folder("golden/mtplx_receipts/mtp.safetensors")).unwrap());
    let ids = recording.0.token_ids("ids").unwrap();
    let mut cache = model.new_cache();
    let (_, streams) = trunk(model, &ids, &mut cache);
    near(&streams, &recording.values("wide"));

    // Row i of the history pairs the streams of token i with token i + 1.
    let mut history = head.new_cache();
    let rows = ops::slice_rows(&streams, 0, 32).unwrap();
    near(&append(&*head, &rows, &ids[1..], &mut history), &recording.values("history.wide_out"));

    let mut last = ops::slice_rows(&streams, 32, 1).unwrap();
    for (round, (committed, primary)) in ROUNDS.into_iter().enumerate() {
        assert_eq!(history.tokens(), committed);
        let (drafts, rows, wide) = draft(&*head, &last, primary, &history);
        let expected = recording.0.floats(&format!("round{round}.draft_logits")).unwrap();
        assert_close(&expected.values, &rows, logits(WeightStorage::F32));
        near(
            &ops::slice_rows(&wide, 0, 1).unwrap(),
            recording.0.floats(&format!("round{round}.draft_wide")).unwrap().row(2),
        );

        let window = [&[primary][..], &drafts].concat();
        let (checked, streams) = trunk(model, &window, &mut cache);
        near(&checked, &recording.values(&format!("round{round}.verify_logits")));

        // All drafts were accepted: the head's history goes on with the trunk's streams.
        let pairs = ops::concatenate(&[&last, &ops::slice_rows(&streams, 0, 3).unwrap()], 0).unwrap();
        append(&*head, &pairs, &window, &mut history);
        last = ops::slice_rows(&streams, 3, 1).unwrap();
    }
}

#[test]
fn a_history_alone_does_not_run_the_whole_layer() {
    let loaded = load("demo/qwen4_exp");
    let head = loaded.model.draft_head().unwrap();
    let (_, streams) = trunk(&*loaded.model, &[11, 12, 13], &mut loaded.model.new_cache());
    let mut cache = head.new_cache();
    let out = head.build(&streams, &[12, 13, 14], &mut cache).unwrap();
    eval(&cache.pending().iter().collect::<Vec<_>>()).unwrap();
    assert!(!out.is_evaluated());
}

#[test]
fn drafts_in_a_window_of_the_history_leave_no_trace() {
    let loaded = load("demo/qwen4_exp");
    let (model, head) = (&*loaded.model, loaded.model.draft_head().unwrap());
    let tokens: Vec<u32> = (0..48).map(|i| 11 + 7 * i).collect();
    let (_, streams) = trunk(model, &tokens, &mut model.new_cache());
    let rows = |from: usize, count: usize| ops::slice_rows(&streams, from, count).unwrap();
    let raw = |cache: &SequenceCache| {
        let part = cache.state().into_iter().find(|(name, _)| name.ends_with("index.raw"));
        part.map(|(_, raw)| raw.to_vec::<f32>().unwrap())
    };
    // Wherever the history stands within a block of the index.
    for length in 1..=34 {
        let mut untouched = head.new_cache();
        append(&*head, &rows(0, length), &tokens[1..=length], &mut untouched);
        let mut history = untouched.clone();
        history.begin_window();
        let mut chain = rows(length, 1);
        for token in [5, 6, 7, 8] {
            chain = append(&*head, &chain, &[token], &mut history);
        }
        history.commit_window(0).unwrap();
        assert_eq!(history.tokens(), length);
        assert_eq!(raw(&history), raw(&untouched), "after {length} rows");

        let next = &tokens[length + 1..length + 6];
        let after = |cache: &mut SequenceCache| append(&*head, &rows(length, 5), next, cache);
        let (with, without) = (after(&mut history), after(&mut untouched));
        assert_eq!(with.to_vec::<f32>().unwrap(), without.to_vec::<f32>().unwrap(), "after {length} rows");
    }
}
