//! The kernels of Kimi delta attention and of attention over latents: against float64 loops written from their
//! documentation, scalar against vectors, and the law of rows.

mod support;

use std::ops::Range;

use ds4_cpu_kernels::*;
use proptest::prelude::*;
use support::*;

/// Error of float32 sums of some hundred terms up to 1, and of recurrences over some tokens.
const CLOSE: f64 = 2e-5;

fn assert_close(got: &[f32], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*got) - want).abs();
        assert!(error <= CLOSE * want.abs().max(1.0), "{what}, element {i}: {got} instead of {want}");
    }
}

/// A sequence for [`kimi_delta`].
struct Sequence {
    heads: usize,
    dk: usize,
    dv: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    g: Vec<f32>,
    beta: Vec<f32>,
    state: Vec<f32>,
}

impl Sequence {
    fn new(random: &mut Random, tokens: usize, heads: usize, dk: usize, dv: usize) -> Self {
        let keys = tokens * heads * dk;
        let unit = |x: Vec<f32>| filled(keys, |out| l2_norm(&Cpu::scalar(), &x, dk, 1e-6, 1.0, out));
        Self {
            heads,
            dk,
            dv,
            q: unit(random.floats(keys)),
            k: unit(random.floats(keys)),
            v: random.floats(tokens * heads * dv),
            g: random.scaled(keys, 5.0).iter().map(|g| -g.abs()).collect(),
            beta: random.floats(tokens * heads).iter().map(|b| b.abs()).collect(),
            state: random.floats(heads * dk * dv),
        }
    }

    fn tokens(&self) -> usize {
        self.beta.len() / self.heads
    }

    /// Outputs of the tokens of `range`; `state` moves on.
    fn run(&self, cpu: &Cpu, range: Range<usize>, state: &mut [f32]) -> Vec<f32> {
        let Self { heads, dk, dv, .. } = *self;
        let keys = range.start * heads * dk..range.end * heads * dk;
        let values = range.start * heads * dv..range.end * heads * dv;
        let args = KimiDeltaArgs {
            q: &self.q[keys.clone()],
            k: &self.k[keys.clone()],
            v: &self.v[values.clone()],
            g: &self.g[keys],
            beta: &self.beta[range.start * heads..range.end * heads],
            heads,
            dk,
            dv,
        };
        from_either_place(range.len(), values.len(), state, |sequence, out| {
            kimi_delta(cpu, &args, &mut [sequence], out);
        })
    }

    /// The same for all tokens, in float64 and as the documentation says it: outputs and the last state.
    fn exact(&self) -> (Vec<f64>, Vec<f64>) {
        let Self { heads, dk, dv, .. } = *self;
        let mut state: Vec<f64> = self.state.iter().copied().map(f64::from).collect();
        let mut out = vec![0.0; self.v.len()];
        for at in 0..self.beta.len() {
            let state = &mut state[at % heads * dk * dv..][..dk * dv];
            let (q, k, g) = (&self.q[at * dk..], &self.k[at * dk..], &self.g[at * dk..]);
            for (i, row) in state.chunks_exact_mut(dv).enumerate() {
                row.iter_mut().for_each(|s| *s *= f64::from(g[i]).exp());
            }
            for c in 0..dv {
                let remembered: f64 = (0..dk).map(|i| state[i * dv + c] * f64::from(k[i])).sum();
                let delta = (f64::from(self.v[at * dv + c]) - remembered) * f64::from(self.beta[at]);
                (0..dk).for_each(|i| state[i * dv + c] += f64::from(k[i]) * delta);
                out[at * dv + c] = (0..dk).map(|i| state[i * dv + c] * f64::from(q[i])).sum();
            }
        }
        (out, state)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn kimi_delta_is_its_recurrence_however_it_is_cut(
        seed: u64, tokens in 1usize..9, heads in 1usize..4, dk in 1usize..70, dv in 1usize..90, cut in 0usize..9,
    ) {
        let sequence = Sequence::new(&mut Random(seed), tokens, heads, dk, dv);
        let (want, last) = sequence.exact();
        for alone in all_isas(1) {
            let mut state = sequence.state.clone();
            let one_by_one: Vec<f32> = (0..tokens).flat_map(|t| sequence.run(&alone, t..t + 1, &mut state)).collect();
            assert_close(&one_by_one, &want, "output");
            assert_close(&state, &last, "state");
            for threads in [1, 2, 3] {
                let Some(cpu) = Cpu::with_isa(alone.isa(), threads) else { continue };
                let (mut cut_state, cut) = (sequence.state.clone(), cut % (sequence.tokens() + 1));
                let mut out = sequence.run(&cpu, 0..cut, &mut cut_state);
                out.extend(sequence.run(&cpu, cut..tokens, &mut cut_state));
                prop_assert_eq!(bits(&out), bits(&one_by_one));
                prop_assert_eq!(bits(&cut_state), bits(&state));
            }
        }
    }

    #[test]
    fn heads_have_matrices_of_their_own(
        seed: u64, format in 0..FORMATS, tokens in 1usize..6, heads in 1usize..4, rows in 1usize..20, k in 1usize..200,
        before in 0usize..3, after in 0usize..3,
    ) {
        let mut random = Random(seed);
        let k = Weights::fitting(format, k);
        let stride = before + rows + after;
        let w = Weights::new(&mut random, format, heads * stride, k);
        let at = HeadMatrices { heads, stride, first: before, rows };
        let (x, y) = (random.floats(tokens * heads * k), random.scaled(tokens * heads * rows, 0.2));
        for threads in [1, 2, 3] {
            for cpu in all_isas(threads) {
                let out = filled(y.len(), |out| head_linear(&cpu, &x, w.matrix(), at, k, out));
                let back = filled(x.len(), |out| head_linear_transposed(&cpu, &y, w.matrix(), at, k, out));
                for row in 0..tokens * heads {
                    let matrix = w.matrix().rows(row % heads * stride + before, rows, k);
                    let (x, y) = (&x[row * k..][..k], &y[row * rows..][..rows]);
                    let alone = filled(rows, |out| linear(&cpu, x, matrix, 1, rows, k, out));
                    prop_assert_eq!(bits(&out[row * rows..][..rows]), bits(&alone));
                    let values = filled(rows * k, |out| {
                        gather_rows(&cpu, matrix, &(0..rows as u32).collect::<Vec<_>>(), k, out);
                    });
                    let sum = |c: usize| (0..rows).map(|r| f64::from(y[r]) * f64::from(values[r * k + c])).sum();
                    let want: Vec<f64> = (0..k).map(sum).collect();
                    assert_close(&back[row * k..][..k], &want, "transposed");
                    // Alone, each row is a call with one token of one head.
                    let one = HeadMatrices { heads: 1, stride: rows, first: 0, rows };
                    let alone = filled(k, |out| head_linear_transposed(&cpu, y, matrix, one, k, out));
                    prop_assert_eq!(bits(&back[row * k..][..k]), bits(&alone));
                }
            }
        }
    }

    #[test]
    fn windows_are_pooled_channel_by_channel(seed: u64, windows in 1usize..6, rows in 1usize..10, width in 1usize..100) {
        let mut random = Random(seed);
        let size = rows * width;
        let (values, mut gates) = (random.floats(windows * size), random.scaled(windows * size, 4.0));
        if rows > 1 {
            gates[..width].fill(f32::NEG_INFINITY);
        }
        let weight = |at: usize| f64::from(gates[at]).exp();
        let want: Vec<f64> = (0..windows * width).map(|i| {
            let column = (0..rows).map(|r| i / width * size + r * width + i % width);
            let total: f64 = column.clone().map(weight).sum();
            column.map(|at| weight(at) * f64::from(values[at])).sum::<f64>() / total
        }).collect();
        for cpu in all_isas(2) {
            let out = filled(want.len(), |out| gated_pool(&cpu, &values, &gates, rows, width, out));
            assert_close(&out, &want, "pooled");
            for (window, whole) in out.chunks_exact(width).enumerate() {
                let range = window * size..(window + 1) * size;
                let alone = filled(width, |out| {
                    gated_pool(&cpu, &values[range.clone()], &gates[range.clone()], rows, width, out);
                });
                prop_assert_eq!(bits(&alone), bits(whole));
            }
        }
    }

    #[test]
    fn a_clamped_swiglu_stays_in_bounds(seed: u64, len in 1usize..3000, limit in 0.5f32..8.0) {
        let mut random = Random(seed);
        let (gate, up) = (random.scaled(len, 10.0), random.scaled(len, 10.0));
        let (low, high) = (gate.iter().map(|g| g.min(limit)), up.iter().map(|u| u.clamp(-limit, limit)));
        let (low, high): (Vec<f32>, Vec<f32>) = (low.collect(), high.collect());
        for cpu in all_isas(2) {
            let out = filled(len, |out| swiglu_clamped(&cpu, StridedRows::dense(&gate), StridedRows::dense(&up), limit, out));
            let clamped_before = filled(len, |out| swiglu(&cpu, StridedRows::dense(&low), StridedRows::dense(&high), out));
            prop_assert_eq!(bits(&out), bits(&clamped_before));
        }
    }

    #[test]
    fn only_the_best_groups_are_kept(seed: u64, rows in 1usize..5, groups in 1usize..6, size in 2usize..7, keep in 1usize..6) {
        let mut random = Random(seed);
        let (keep, experts) = (keep.min(groups), groups * size);
        // Few different values, so that groups are often equal.
        let scores: Vec<f32> = (0..rows * experts).map(|_| random.below(4) as f32).collect();
        for cpu in all_isas(2) {
            let out = filled(scores.len(), |out| keep_best_groups(&cpu, &scores, experts, groups, keep, out));
            for (scores, out) in scores.chunks_exact(experts).zip(out.chunks_exact(experts)) {
                let value = |group: usize| {
                    let mut group = scores[group * size..][..size].to_vec();
                    group.sort_by(f32::total_cmp);
                    group[size - 1] + group[size - 2]
                };
                let mut order: Vec<usize> = (0..groups).collect();
                order.sort_by(|a, b| value(*b).total_cmp(&value(*a)));
                let kept = |expert: usize| order[..keep].contains(&(expert / size));
                let want = |e: usize| if kept(e) { scores[e] } else { f32::NEG_INFINITY };
                prop_assert_eq!(out, (0..experts).map(want).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn heads_weigh_the_scores_of_the_indexer() {
    // Two heads of size 1 with queries 1 and -1: the first sees positive keys, the second negative ones.
    let keys = [3.0, -2.0, 1.0, -4.0];
    let pages = [ds4_dtype::Floats::F32(&keys)];
    for cpu in all_isas(1) {
        let select = |weights: Option<&[f32]>| {
            let args = IndexSelectArgs {
                q: &[1.0, -1.0],
                weights,
                keys: &pages,
                page_rows: 4,
                first_position: 3,
                block: 1,
                top: 2,
                heads: 2,
                d: 1,
                scale: 1.0,
            };
            let mut out = vec![0; 2];
            index_select(&cpu, &args, &mut out);
            out
        };
        assert_eq!(select(None), [0, 3]);
        assert_eq!(select(Some(&[1.0, 0.1])), [0, 2]);
        // A negative weight turns the order round.
        assert_eq!(select(Some(&[-1.0, 0.0])), [1, 3]);
    }
}
