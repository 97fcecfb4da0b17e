//! The law of rows: a row has the same bits alone, in any batch, anywhere in it, on any number of threads and however a
//! sequence is cut into calls. Checked for every kernel and every instruction set of the machine.

mod support;

use std::ops::Range;

use ds4_cpu_kernels::*;
use ds4_dtype::Floats;
use proptest::prelude::*;
use support::*;

/// Checks `kernel(cpu, rows)` = the output of those rows, for rows alone, the first few, the last few and all.
fn check_rows<T: PartialEq + std::fmt::Debug>(
    rows: usize,
    cut: usize,
    kernel: impl Fn(&Cpu, Range<usize>) -> Vec<T>,
) {
    check_rows_with(Activations::F32, rows, cut, kernel);
}

fn check_rows_with<T: PartialEq + std::fmt::Debug>(
    activations: Activations,
    rows: usize,
    cut: usize,
    kernel: impl Fn(&Cpu, Range<usize>) -> Vec<T>,
) {
    for alone in all_isas(1) {
        let alone = alone.with_activations(activations);
        let one_by_one: Vec<T> = (0..rows).flat_map(|row| kernel(&alone, row..row + 1)).collect();
        for threads in [1, 2, 3] {
            let Some(cpu) = Cpu::with_isa(alone.isa(), threads) else { continue };
            let cpu = cpu.with_activations(activations);
            assert!(kernel(&cpu, 0..rows) == one_by_one, "{:?}, {threads} threads, all rows", cpu.isa());
            let cut = cut % (rows + 1);
            let mut parts = kernel(&cpu, 0..cut);
            parts.extend(kernel(&cpu, cut..rows));
            assert!(parts == one_by_one, "{:?}, {threads} threads, cut at {cut}", cpu.isa());
        }
    }
}

/// [`check_rows`] for kernels with float output, compared as bits.
fn check(rows: usize, width: usize, cut: usize, kernel: impl Fn(&Cpu, Range<usize>, &mut [f32])) {
    check_rows(rows, cut, |cpu, rows| output_bits(cpu, rows, width, &kernel));
}

/// [`check`] with rounded activations, whose results are moreover the same on every instruction set.
fn check_int8(rows: usize, width: usize, cut: usize, kernel: impl Fn(&Cpu, Range<usize>, &mut [f32])) {
    check_rows_with(Activations::Int8, rows, cut, |cpu, rows| output_bits(cpu, rows, width, &kernel));
    let mut results = all_isas(1)
        .into_iter()
        .map(|cpu| output_bits(&cpu.with_activations(Activations::Int8), 0..rows, width, &kernel));
    let scalar = results.next();
    assert!(results.all(|result| Some(&result) == scalar.as_ref()), "the instruction sets differ");
}

fn output_bits(
    cpu: &Cpu,
    rows: Range<usize>,
    width: usize,
    kernel: impl Fn(&Cpu, Range<usize>, &mut [f32]),
) -> Vec<u32> {
    bits(&filled(rows.len() * width, |out| {
        if !out.is_empty() {
            kernel(cpu, rows, out)
        }
    }))
}

fn activations() -> impl Strategy<Value = Activations> {
    prop_oneof![Just(Activations::F32), Just(Activations::Int8)]
}

/// `range` of rows of `width`.
fn part(x: &[f32], range: &Range<usize>, width: usize) -> Vec<f32> {
    x[range.start * width..range.end * width].to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn linear_rows(seed: u64, format in 0..FORMATS, m in 1usize..40, n in 1usize..150, k in 1usize..1000, cut in 0usize..40) {
        let mut random = Random(seed);
        let k = Weights::fitting(format, k);
        let (w, x) = (Weights::new(&mut random, format, n, k), random.floats(m * k));
        check(m, n, cut, |cpu, rows, out| linear(cpu, &part(&x, &rows, k), w.matrix(), rows.len(), n, k, out));
    }

    #[test]
    fn int8_linear_rows(seed: u64, format in 3..FORMATS, m in 1usize..20, n in 1usize..150, k in 1usize..3000, cut in 0usize..20) {
        let mut random = Random(seed);
        let k = Weights::fitting(format, k);
        let (w, x) = (Weights::new(&mut random, format, n, k), random.floats(m * k));
        check_int8(m, n, cut, |cpu, rows, out| linear(cpu, &part(&x, &rows, k), w.matrix(), rows.len(), n, k, out));
    }

    #[test]
    fn several_weights_of_one_input(seed: u64, format in 0..FORMATS, activations in activations(), m in 0usize..20, n in prop::collection::vec(0usize..150, 1..5), k in 1usize..600) {
        let mut random = Random(seed);
        let k = Weights::fitting(format, k);
        let weights: Vec<_> = n.iter().map(|&n| Weights::new(&mut random, format, n, k)).collect();
        let x = random.floats(m * k);
        for cpu in all_isas(2) {
            let cpu = cpu.with_activations(activations);
            let mut outs: Vec<Vec<f32>> = n.iter().map(|n| vec![f32::NAN; m * n]).collect();
            let targets = weights.iter().zip(&n).zip(&mut outs);
            let mut targets: Vec<_> = targets.map(|((w, &n), out)| LinearTarget::new(w.matrix(), n, out)).collect();
            linears(&cpu, &x, m, k, &mut targets);
            drop(targets);
            for ((w, &n), out) in weights.iter().zip(&n).zip(&outs) {
                let alone = filled(m * n, |out| linear(&cpu, &x, w.matrix(), m, n, k, out));
                prop_assert_eq!(bits(out), bits(&alone));
            }
        }
    }

    #[test]
    fn grouped_linear_rows(seed: u64, format in 0..FORMATS, activations in activations(), m in 1usize..12, experts in 1usize..6, n in 1usize..90, k in 1usize..600) {
        let mut random = Random(seed);
        let k = Weights::fitting(format, k);
        let top = experts.min(2);
        let w = Weights::new(&mut random, format, experts * n, k);
        let x = random.floats(m * k);
        let routes: Vec<u32> = (0..m)
            .flat_map(|_| { let first = random.below(experts); (0..top).map(move |s| ((first + s) % experts) as u32) })
            .collect();
        for threads in [1, 2, 3] {
            for cpu in all_isas(threads) {
                let cpu = cpu.with_activations(activations);
                let (mut rows, mut offsets, mut position) = (vec![0; m * top], vec![0; experts + 1], vec![0; m * top]);
                sort_by_expert(&routes, top, &mut rows, &mut offsets, &mut position);
                let out = filled(m * top * n, |out| grouped_linear(&cpu, &x, w.matrix(), Some(&rows), &offsets, n, k, out));
                // The same from a row for each pair.
                let own: Vec<f32> = rows.iter().flat_map(|&row| &x[row as usize * k..][..k]).copied().collect();
                let from_own = filled(out.len(), |out| grouped_linear(&cpu, &own, w.matrix(), None, &offsets, n, k, out));
                prop_assert_eq!(bits(&from_own), bits(&out));
                for (pair, (&expert, &at)) in routes.iter().zip(&position).enumerate() {
                    let (x, at) = (&x[pair / top * k..][..k], at as usize);
                    let expert = w.matrix().rows(expert as usize * n, n, k);
                    let alone = filled(n, |out| linear(&cpu, x, expert, 1, n, k, out));
                    prop_assert_eq!(bits(&out[at * n..][..n]), bits(&alone));
                }
            }
        }
    }

    #[test]
    fn elementwise_rows(seed: u64, rows in 1usize..6, width in 1usize..5000, cut in 0usize..6) {
        let mut random = Random(seed);
        let (a, b) = (random.scaled(rows * width, 4.0), random.scaled(rows * width, 4.0));
        let row = random.floats(width);
        for op in [UnaryOp::Exp, UnaryOp::Sigmoid, UnaryOp::Silu, UnaryOp::Softplus, UnaryOp::SignedSqrt, UnaryOp::Reciprocal] {
            check(rows, width, cut, |cpu, r, out| unary(cpu, op, &part(&a, &r, width), out));
        }
        check(rows, width, cut, |cpu, r, out| binary(cpu, BinaryOp::Div, &part(&a, &r, width), &part(&b, &r, width), out));
        check(rows, width, cut, |cpu, r, out| binary_row(cpu, BinaryOp::Mul, &part(&a, &r, width), &row, out));
        check(rows, width, cut, |cpu, r, out| binary_column(cpu, BinaryOp::Sub, &part(&a, &r, width), &b[r], out));
        check(rows, width, cut, |cpu, r, out| swiglu(cpu, StridedRows::dense(&part(&a, &r, width)), StridedRows::dense(&part(&b, &r, width)), out));
        check(rows, width, cut, |cpu, r, out| sigmoid_gate(cpu, &part(&a, &r, width), &part(&b, &r, width), out));
    }

    #[test]
    fn norm_and_reduction_rows(seed: u64, rows in 1usize..8, groups in 1usize..4, group in 1usize..1500, cut in 0usize..8) {
        let mut random = Random(seed);
        let width = groups * group;
        let x = random.scaled(rows * width, 3.0);
        let weight = Stored::new(random.below(3), &random.floats(width));
        check(rows, width, cut, |cpu, r, out| {
            rms_norm(cpu, &part(&x, &r, width), Some(weight.floats()), 1.0, width, group, 1e-6, out);
        });
        check(rows, width, cut, |cpu, r, out| l2_norm(cpu, &part(&x, &r, width), width, 1e-6, 0.5, out));
        check(rows, width, cut, |cpu, r, out| softmax(cpu, &part(&x, &r, width), width, out));
        for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max] {
            check(rows, 1, cut, |cpu, r, out| reduce(cpu, op, &part(&x, &r, width), out));
        }
        check(rows, group, cut, |cpu, r, out| mean_middle(cpu, &part(&x, &r, width), groups, group, out));
        check_rows(rows, cut, |cpu, r| {
            let mut out = vec![0; r.len()];
            argmax(cpu, &part(&x, &r, width), width, &mut out);
            out
        });
        check_rows(rows, cut, |cpu, r| {
            let k = width.min(7);
            let mut out = vec![0; r.len() * k];
            top_k(cpu, &part(&x, &r, width), width, k, &mut out);
            out
        });
    }

    #[test]
    fn rope_and_stream_rows(seed: u64, rows in 1usize..8, heads in 1usize..9, d in 1usize..200, cut in 0usize..8) {
        let mut random = Random(seed);
        let (width, r) = (heads * d, d / 4 * 2);
        let (x, u) = (random.floats(rows * width), random.floats(rows * width));
        let (y, inject) = (random.floats(rows * d), random.floats(rows * heads));
        let (cos, sin) = (random.floats(rows * r / 2), random.floats(rows * r / 2));
        check(rows, width, cut, |cpu, t, out| {
            rope(cpu, &part(&x, &t, width), &part(&cos, &t, r / 2), &part(&sin, &t, r / 2), heads, d, r, out);
        });
        check(rows, d, cut, |cpu, t, out| {
            stream_mix(cpu, &part(&u, &t, width), &part(&x, &t, width), heads, d, out);
        });
        check(rows, width, cut, |cpu, t, out| {
            out.copy_from_slice(&part(&x, &t, width));
            stream_inject(cpu, out, &part(&y, &t, d), &part(&inject, &t, heads), heads, d);
        });
    }

    #[test]
    fn gathered_and_combined_rows(seed: u64, format in 0..FORMATS, rows in 1usize..9, k in 1usize..400, cut in 0usize..9) {
        let mut random = Random(seed);
        let (k, slots, pairs) = (Weights::fitting(format, k), 3, 20);
        let table = Weights::new(&mut random, format, pairs, k);
        let ids: Vec<u32> = (0..rows * slots).map(|_| random.below(pairs) as u32).collect();
        let (y, weights) = (random.floats(pairs * k), random.floats(rows * slots));
        check(rows, k, cut, |cpu, r, out| gather_rows(cpu, table.matrix(), &ids[r], k, out));
        check(rows, k, cut, |cpu, r, out| {
            let slots_of = r.start * slots..r.end * slots;
            combine_experts(cpu, &y, &ids[slots_of.clone()], &weights[slots_of], slots, k, out);
        });
    }

    #[test]
    fn gated_rows_that_lie_apart(seed: u64, rows in 1usize..9, width in 1usize..3000, gap in 0usize..9) {
        let mut random = Random(seed);
        let both = random.floats(rows * (2 * width + gap));
        let (gate, up) = (&both[..], &both[width + gap..]);
        let columns = |x: &[f32]| -> Vec<f32> {
            (0..rows).flat_map(|row| x[row * (2 * width + gap)..][..width].to_vec()).collect()
        };
        for cpu in all_isas(2) {
            let apart = |x| StridedRows::new(x, width, 2 * width + gap);
            let (dense_gate, dense_up) = (columns(gate), columns(up));
            let (dense_gate, dense_up) = (StridedRows::dense(&dense_gate), StridedRows::dense(&dense_up));
            let together = filled(rows * width, |out| swiglu(&cpu, dense_gate, dense_up, out));
            prop_assert_eq!(bits(&filled(rows * width, |out| swiglu(&cpu, apart(gate), apart(up), out))), bits(&together));
            prop_assert_eq!(bits(&filled(rows * width, |out| swiglu(&cpu, dense_gate, apart(up), out))), bits(&together));
            let together = filled(rows * width, |out| swiglu_clamped(&cpu, dense_gate, dense_up, 0.5, out));
            let out = filled(rows * width, |out| swiglu_clamped(&cpu, apart(gate), apart(up), 0.5, out));
            prop_assert_eq!(bits(&out), bits(&together));
        }
    }

    #[test]
    fn convolved_tokens(seed: u64, tokens in 1usize..9, channels in 1usize..3000, kernel in 1usize..10, dilation in 1usize..4, silu: bool, cut in 0usize..9) {
        let mut random = Random(seed);
        let before = (kernel - 1) * dilation;
        let u = random.floats((before + tokens) * channels);
        let weight = random.floats(channels * kernel);
        check(tokens, channels, cut, |cpu, r, out| {
            let history = &u[r.start * channels..(r.start + before) * channels];
            let x = &u[(r.start + before) * channels..(r.end + before) * channels];
            let mut next = vec![f32::NAN; history.len()];
            let args = CausalConv1dArgs { x, weight: &weight, channels, kernel, dilation, silu };
            causal_conv1d(cpu, &args, &mut [ConvSequence::new(0..r.len(), history, &mut next)], out);
            assert_eq!(next, u[r.end * channels..(r.end + before) * channels]);
        });
    }

    #[test]
    fn delta_net_tokens(seed: u64, tokens in 1usize..9, key_heads in 1usize..3, ratio in 1usize..4, dk in 1usize..70, dv in 1usize..90, cut in 0usize..9) {
        let mut random = Random(seed);
        let value_heads = key_heads * ratio;
        let (q, k) = (random.scaled(tokens * key_heads * dk, 0.3), random.scaled(tokens * key_heads * dk, 0.3));
        let v = random.floats(tokens * value_heads * dv);
        let g: Vec<f32> = random.floats(tokens * value_heads).iter().map(|g| -g.abs()).collect();
        let beta = random.floats(tokens * value_heads);
        let start = random.floats(value_heads * dk * dv);
        let run = |cpu: &Cpu, range: Range<usize>, state: &mut [f32]| {
            let rows = |x: &[f32], heads: usize| part(x, &range, heads);
            let (q, k, v) = (rows(&q, key_heads * dk), rows(&k, key_heads * dk), rows(&v, value_heads * dv));
            let (g, beta) = (rows(&g, value_heads), rows(&beta, value_heads));
            let args = GatedDeltaArgs { q: &q, k: &k, v: &v, g: &g, beta: &beta, key_heads, value_heads, dk, dv };
            from_either_place(range.len(), v.len(), state, |sequence, out| gated_delta(cpu, &args, &mut [sequence], out))
        };
        for cpu in all_isas(1) {
            let mut state = start.clone();
            let one_by_one: Vec<f32> = (0..tokens).flat_map(|t| run(&cpu, t..t + 1, &mut state)).collect();
            for threads in [1, 2, 3] {
                let Some(cpu) = Cpu::with_isa(cpu.isa(), threads) else { continue };
                let mut cut_state = start.clone();
                let cut = cut % (tokens + 1);
                let mut out = run(&cpu, 0..cut, &mut cut_state);
                out.extend(run(&cpu, cut..tokens, &mut cut_state));
                prop_assert_eq!(bits(&out), bits(&one_by_one));
                prop_assert_eq!(bits(&cut_state), bits(&state));
            }
        }
    }

    #[test]
    fn attention_queries(
        seed: u64, format in 0usize..3, tokens in 1usize..40, before in 0usize..90, kv_heads in 1usize..3,
        ratio in 1usize..5, d in 1usize..70, dv in 1usize..90, page_rows in 1usize..50, selected: bool, cut in 0usize..40,
    ) {
        let mut random = Random(seed);
        let cache = Cache::new(&mut random, format, before + tokens, page_rows, kv_heads, d, dv);
        let heads = kv_heads * ratio;
        let q = random.scaled(tokens * heads * d, 2.0);
        let (block, per_row) = (5, 4);
        let ids: Vec<u32> = (0..tokens).flat_map(|t| some_blocks(&mut random, (before + t + 1) / block, per_row)).collect();
        check(tokens, heads * dv, cut, |cpu, r, out| {
            cache.with(|keys, values| {
                let ids = &ids[r.start * per_row..r.end * per_row];
                let selection = selected.then_some(BlockSelection { block, per_row, ids });
                let q = &part(&q, &r, heads * d);
                let first_position = before + r.start;
                let scale = 0.3;
                attention(cpu, &AttentionArgs { q, keys, values, page_rows, first_position, kv_heads, heads, d, dv, scale, selection }, out);
            });
        });
    }

    #[test]
    fn indexer_queries(
        seed: u64, format in 0usize..3, tokens in 1usize..30, before in 0usize..200, heads in 1usize..5, d in 1usize..70,
        page_rows in 1usize..20, top in 1usize..9, weighted: bool, cut in 0usize..30,
    ) {
        let mut random = Random(seed);
        let block = 4;
        let cache = Cache::new(&mut random, format, (before + tokens) / block, page_rows, 1, d, 1);
        let q = random.floats(tokens * heads * d);
        let weights = random.floats(tokens * heads);
        check_rows(tokens, cut, |cpu, r| {
            let mut out = vec![0; r.len() * top];
            cache.with(|keys, _| {
                let q = &part(&q, &r, heads * d);
                let first_position = before + r.start;
                let scale = 0.5;
                let weights = weighted.then(|| &weights[r.start * heads..r.end * heads]);
                index_select(cpu, &IndexSelectArgs { q, weights, keys, page_rows, first_position, block, top, heads, d, scale }, &mut out);
            });
            out
        });
    }
}

/// Up to `per_row` of `blocks` blocks in the form of a selection.
fn some_blocks(random: &mut Random, blocks: usize, per_row: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..blocks as u32).collect();
    while ids.len() > per_row {
        ids.remove(random.below(ids.len()));
    }
    ids.resize(per_row, u32::MAX);
    ids
}

/// Pages of keys and values.
struct Cache {
    keys: Vec<Stored>,
    values: Vec<Stored>,
}

impl Cache {
    fn new(
        random: &mut Random,
        format: usize,
        rows: usize,
        page_rows: usize,
        heads: usize,
        d: usize,
        dv: usize,
    ) -> Self {
        let mut pages = |width: usize| {
            (0..rows)
                .step_by(page_rows)
                .map(|first| Stored::new(format, &random.floats(page_rows.min(rows - first) * heads * width)))
                .collect()
        };
        Self { keys: pages(d), values: pages(dv) }
    }

    fn with(&self, call: impl FnOnce(&[Floats<'_>], &[Floats<'_>])) {
        let keys: Vec<Floats<'_>> = self.keys.iter().map(Stored::floats).collect();
        let values: Vec<Floats<'_>> = self.values.iter().map(Stored::floats).collect();
        call(&keys, &values);
    }
}

/// A state too large for the cache is written past it, which must not show.
#[test]
fn a_large_state_goes_on_from_another_place() {
    let (tokens, heads, dk, dv) = (4, 8, 128, 136);
    let mut random = Random(11);
    let (q, k) = (random.scaled(tokens * heads * dk, 0.3), random.scaled(tokens * heads * dk, 0.3));
    let (v, beta) = (random.floats(tokens * heads * dv), random.floats(tokens * heads));
    let g: Vec<f32> = random.floats(tokens * heads).iter().map(|g| -g.abs()).collect();
    let start = random.floats(heads * dk * dv);
    let args = GatedDeltaArgs {
        q: &q,
        k: &k,
        v: &v,
        g: &g,
        beta: &beta,
        key_heads: heads,
        value_heads: heads,
        dk,
        dv,
    };
    for cpu in all_isas(2) {
        from_either_place(tokens, v.len(), &mut start.clone(), |sequence, out| {
            gated_delta(&cpu, &args, &mut [sequence], out);
        });
    }
}
