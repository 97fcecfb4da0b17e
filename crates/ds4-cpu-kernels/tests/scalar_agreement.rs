//! The vector kernels compute what the scalar ones compute, at odd sizes and tails included; and the scalar ones what
//! their documentation says, in float64.

mod support;

use ds4_cpu_kernels::*;
use ds4_dtype::Floats;
use proptest::prelude::*;
use support::*;

/// Error of a float32 sum, relative to the sum of the absolute terms: a few roundings of 2^-24 for sums of some hundred
/// terms in eight chains.
const SUM: f64 = 2e-6;

/// Error of elementwise functions, relative to the value: two to four roundings more than an exact library function.
const FUNCTION: f64 = 5e-7;

/// Error of recurrences and of softmax-weighted sums of values up to 1, absolute.
const CHAIN: f64 = 2e-5;

fn assert_close(got: f32, want: f64, allowed: f64, what: std::fmt::Arguments<'_>) {
    assert!((f64::from(got) - want).abs() <= allowed, "{what}: {got} instead of {want}, allowed {allowed:e}");
}

/// Runs a kernel on the best instruction set with 2 threads and on the scalar one.
fn both(len: usize, kernel: impl Fn(&Cpu, &mut [f32])) -> (Vec<f32>, Vec<f32>) {
    (filled(len, |out| kernel(&Cpu::new(2), out)), filled(len, |out| kernel(&Cpu::scalar(), out)))
}

fn agree(len: usize, allowed: f64, kernel: impl Fn(&Cpu, &mut [f32])) {
    let (fast, scalar) = both(len, kernel);
    for (i, (fast, scalar)) in fast.iter().zip(&scalar).enumerate() {
        assert_close(
            *fast,
            f64::from(*scalar),
            allowed * f64::from(scalar.abs()).max(1.0),
            format_args!("element {i}"),
        );
    }
}

fn values(w: Matrix<'_>, rows: usize, k: usize) -> Vec<f32> {
    let ids: Vec<u32> = (0..rows as u32).collect();
    filled(rows * k, |out| gather_rows(&Cpu::scalar(), w, &ids, k, out))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn linear_is_the_product(seed: u64, format in 0..FORMATS, m in 0usize..40, n in 1usize..40, k in 1usize..600) {
        let mut random = Random(seed);
        let k = Weights::fitting(format, k);
        let (w, x) = (Weights::new(&mut random, format, n, k), random.floats(m * k));
        let (fast, scalar) = both(m * n, |cpu, out| linear(cpu, &x, w.matrix(), m, n, k, out));
        let dense = values(w.matrix(), n, k);
        for (at, (fast, scalar)) in fast.iter().zip(&scalar).enumerate() {
            let terms = || x[at / n * k..][..k].iter().zip(&dense[at % n * k..][..k]).map(|(x, w)| f64::from(*x) * f64::from(*w));
            let (want, size): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
            assert_close(*fast, want, SUM * size, format_args!("fast {at}"));
            assert_close(*scalar, want, SUM * size, format_args!("scalar {at}"));
        }
    }

    #[test]
    fn affine_weights_are_their_values(seed: u64, format in 3..FORMATS, m in 1usize..6, n in 1usize..20, k in 1usize..400) {
        let mut random = Random(seed);
        let k = Weights::fitting(format, k);
        let (w, x) = (Weights::new(&mut random, format, n, k), random.floats(m * k));
        for cpu in all_isas(1) {
            let ids: Vec<u32> = (0..n as u32).collect();
            let dense = filled(n * k, |out| gather_rows(&cpu, w.matrix(), &ids, k, out));
            prop_assert_eq!(bits(&dense), bits(&values(w.matrix(), n, k)));
            let from_dense = filled(m * n, |out| linear(&cpu, &x, Matrix::Dense(Floats::F32(&dense)), m, n, k, out));
            let from_affine = filled(m * n, |out| linear(&cpu, &x, w.matrix(), m, n, k, out));
            prop_assert_eq!(bits(&from_affine), bits(&from_dense));
        }
    }

    #[test]
    fn elementwise(seed: u64, rows in 1usize..5, width in 1usize..70, scale in 0.01f32..60.0) {
        let mut random = Random(seed);
        let (a, b) = (random.scaled(rows * width, scale), random.scaled(rows * width, scale));
        let len = rows * width;
        for op in [UnaryOp::Neg, UnaryOp::Exp, UnaryOp::Sigmoid, UnaryOp::Silu, UnaryOp::Softplus, UnaryOp::Square,
                   UnaryOp::Abs, UnaryOp::Relu, UnaryOp::Reciprocal, UnaryOp::SignedSqrt] {
            agree(len, FUNCTION, |cpu, out| unary(cpu, op, &a, out));
            agree(len, 0.0, |cpu, out| { let twice = filled(len, |o| unary(cpu, op, &a, o)); out.copy_from_slice(&a);
                unary_in_place(cpu, op, out); assert_eq!(bits(out), bits(&twice)); out.fill(0.0); });
        }
        let positive: Vec<f32> = a.iter().map(|a| a.abs()).collect();
        agree(len, 0.0, |cpu, out| unary(cpu, UnaryOp::Sqrt, &positive, out));
        for op in [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Max, BinaryOp::Min] {
            agree(len, 0.0, |cpu, out| binary(cpu, op, &a, &b, out));
            agree(len, 0.0, |cpu, out| { out.copy_from_slice(&a); binary_in_place(cpu, op, out, &b) });
            agree(len, 0.0, |cpu, out| binary_row(cpu, op, &a, &b[..width], out));
            agree(len, 0.0, |cpu, out| { out.copy_from_slice(&a); binary_row_in_place(cpu, op, out, &b[..width]) });
            agree(len, 0.0, |cpu, out| binary_column(cpu, op, &a, &b[..rows], out));
            agree(len, 0.0, |cpu, out| { out.copy_from_slice(&a); binary_column_in_place(cpu, op, out, &b[..rows]) });
        }
        let gate: Vec<f32> = b.iter().map(|b| b.clamp(-20.0, 20.0)).collect();
        agree(len, FUNCTION * 4.0, |cpu, out| swiglu(cpu, StridedRows::dense(&gate), StridedRows::dense(&a), out));
        agree(len, FUNCTION * 4.0, |cpu, out| sigmoid_gate(cpu, &a, &gate, out));
    }

    #[test]
    fn rows_of_numbers(seed: u64, rows in 1usize..5, groups in 1usize..4, group in 1usize..100, weighted: bool) {
        let mut random = Random(seed);
        let width = groups * group;
        let x = random.scaled(rows * width, 5.0);
        let weight = Stored::new(random.below(3), &random.floats(width));
        let weight = weighted.then(|| weight.floats());
        agree(x.len(), SUM, |cpu, out| rms_norm(cpu, &x, weight, 1.0, width, group, 1e-6, out));
        agree(x.len(), SUM, |cpu, out| l2_norm(cpu, &x, width, 1e-6, 0.7, out));
        agree(x.len(), SUM, |cpu, out| softmax(cpu, &x, width, out));
        let size = 5.0 * width as f64;
        agree(rows, SUM * size, |cpu, out| reduce(cpu, ReduceOp::Sum, &x, out));
        agree(rows, SUM * 5.0, |cpu, out| reduce(cpu, ReduceOp::Mean, &x, out));
        agree(rows, 0.0, |cpu, out| reduce(cpu, ReduceOp::Max, &x, out));
    }

    #[test]
    fn rope_conv_and_streams(seed: u64, rows in 1usize..6, heads in 1usize..5, d in 1usize..60, kernel in 1usize..11, dilation in 1usize..4, silu: bool) {
        let mut random = Random(seed);
        let (width, r) = (heads * d, d / 4 * 2);
        let (x, u, y) = (random.floats(rows * width), random.floats(rows * width), random.floats(rows * d));
        let (cos, sin, inject) = (random.floats(rows * r / 2), random.floats(rows * r / 2), random.floats(rows * heads));
        agree(x.len(), SUM, |cpu, out| rope(cpu, &x, &cos, &sin, heads, d, r, out));
        agree(y.len(), SUM, |cpu, out| stream_mix(cpu, &u, &x, heads, d, out));
        agree(x.len(), SUM, |cpu, out| { out.copy_from_slice(&x); stream_inject(cpu, out, &y, &inject, heads, d) });
        let history = random.floats((kernel - 1) * dilation * width);
        let weight = random.floats(width * kernel);
        let args = CausalConv1dArgs { x: &x, weight: &weight, channels: width, kernel, dilation, silu };
        agree(x.len(), SUM * kernel as f64, |cpu, out| {
            let mut next = history.clone();
            causal_conv1d(cpu, &args, &mut [ConvSequence::new(0..rows, &history, &mut next)], out);
        });
    }

    #[test]
    fn delta_net(seed: u64, tokens in 1usize..12, key_heads in 1usize..3, ratio in 1usize..3, dk in 1usize..40, dv in 1usize..80) {
        let mut random = Random(seed);
        let value_heads = key_heads * ratio;
        let unit = |random: &mut Random| { let x = random.floats(tokens * key_heads * dk);
            filled(x.len(), |out| l2_norm(&Cpu::scalar(), &x, dk, 1e-6, 1.0, out)) };
        let (q, k) = (unit(&mut random), unit(&mut random));
        let v = random.floats(tokens * value_heads * dv);
        let g: Vec<f32> = random.floats(tokens * value_heads).iter().map(|g| -g.abs()).collect();
        let beta: Vec<f32> = random.floats(tokens * value_heads).iter().map(|b| b.abs()).collect();
        let start = random.floats(value_heads * dk * dv);
        let args = GatedDeltaArgs { q: &q, k: &k, v: &v, g: &g, beta: &beta, key_heads, value_heads, dk, dv };
        let run = |cpu: &Cpu, state: &mut [f32], out: &mut [f32]| {
            state.copy_from_slice(&start);
            gated_delta(cpu, &args, &mut [DeltaSequence::new(0..tokens, None, state)], out);
        };
        agree(v.len(), CHAIN, |cpu, out| run(cpu, &mut start.clone(), out));
        agree(start.len(), CHAIN, |cpu, state| run(cpu, state, &mut vec![0.0; v.len()]));
    }

    #[test]
    fn attention_and_indexer(
        seed: u64, format in 0usize..3, tokens in 1usize..9, before in 0usize..130, kv_heads in 1usize..3,
        ratio in 1usize..6, d in 1usize..70, dv in 1usize..90, page_rows in 1usize..60, selected: bool,
    ) {
        let mut random = Random(seed);
        let rows = before + tokens;
        let mut pages = |width: usize| -> Vec<Stored> {
            (0..rows).step_by(page_rows).map(|first| Stored::new(format, &random.floats(page_rows.min(rows - first) * width))).collect()
        };
        let (keys, values) = (pages(kv_heads * d), pages(kv_heads * dv));
        let keys: Vec<Floats<'_>> = keys.iter().map(Stored::floats).collect();
        let values: Vec<Floats<'_>> = values.iter().map(Stored::floats).collect();
        let heads = kv_heads * ratio;
        let q = random.floats(tokens * heads * d);
        let (block, per_row) = (7, 3);
        let mut ids: Vec<u32> = Vec::new();
        for t in 0..tokens {
            let whole = ((before + t + 1) / block) as u32;
            ids.extend((0..per_row as u32).map(|i| if i < whole { whole.saturating_sub(per_row as u32) + i } else { u32::MAX }));
        }
        let selection = selected.then_some(BlockSelection { block, per_row, ids: &ids });
        let args = AttentionArgs {
            q: &q, keys: &keys, values: &values, page_rows, first_position: before, kv_heads, heads, d, dv,
            scale: 1.0 / (d as f32).sqrt(), selection,
        };
        agree(tokens * heads * dv, CHAIN, |cpu, out| attention(cpu, &args, out));
    }
}

#[test]
fn exp_is_good_to_about_one_unit_in_the_last_place_everywhere() {
    let x: Vec<f32> = (0..400_000).map(|i| (i as f32 - 200_000.0) * 5.3e-4).collect();
    let got = filled(x.len(), |out| unary(&Cpu::new(1), UnaryOp::Exp, &x, out));
    for (x, got) in x.iter().zip(got) {
        let want = f64::from(*x).exp();
        if want > f64::from(f32::MAX) {
            assert_eq!(got, f32::INFINITY, "e^{x}");
        } else {
            let unit = f64::from((want as f32).next_up()) - f64::from(want as f32);
            let unit = if unit.is_finite() { unit } else { want * 1.2e-7 };
            assert_close(got, want, 1.5 * unit, format_args!("e^{x}"));
        }
    }
}

#[test]
fn special_values_pass_as_documented() {
    let x = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 0.0, -0.0, 1e-9, -1e-9, 100.0, -100.0];
    for cpu in all_isas(1) {
        let of = |op| filled(x.len(), |out| unary(&cpu, op, &x, out));
        let exp = of(UnaryOp::Exp);
        assert_eq!((exp[0], exp[1], exp[3]), (0.0, f32::INFINITY, 1.0));
        let softplus = of(UnaryOp::Softplus);
        assert_eq!((softplus[0], softplus[1], softplus[7]), (0.0, f32::INFINITY, 100.0));
        assert!((softplus[8] / 3.8e-44 - 1.0).abs() < 0.05, "{}", softplus[8]);
        let root = of(UnaryOp::SignedSqrt);
        assert_eq!((root[3], root[4], root[5], root[6]), (0.0, 0.0, 1e-3, -1e-3));
        for op in [
            UnaryOp::Exp,
            UnaryOp::Sigmoid,
            UnaryOp::Silu,
            UnaryOp::Softplus,
            UnaryOp::SignedSqrt,
            UnaryOp::Relu,
        ] {
            assert!(of(op)[2].is_nan(), "{op:?} of NaN on {:?}", cpu.isa());
        }
        let mut max = [0.0; 2];
        reduce(&cpu, ReduceOp::Max, &[1.0, f32::NAN, 2.0, -1.0], &mut max);
        assert!(max[0].is_nan() && max[1] == 2.0);
    }
}

#[test]
fn formats_convert_exactly_and_round_to_even() {
    use ds4_dtype::{bf16, f16};
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let halves: Vec<f16> = all.iter().map(|bits| f16::from_bits(*bits)).collect();
    let brains: Vec<bf16> = all.iter().map(|bits| bf16::from_bits(*bits)).collect();
    let mut random = Random(7);
    let x: Vec<f32> = (0..100_003).map(|_| f32::from_bits(random.bits() as u32)).collect();
    let scalar = Cpu::scalar();
    for cpu in all_isas(2) {
        for floats in [Floats::F16(&halves), Floats::Bf16(&brains)] {
            let [want, got] =
                [&scalar, &cpu].map(|cpu| filled(floats.len(), |out| convert(cpu, floats, out)));
            assert!(
                want.iter().zip(&got).all(|(w, g)| w.to_bits() == g.to_bits() || w.is_nan() && g.is_nan())
            );
        }
        let [want, got] = [&scalar, &cpu].map(|cpu| {
            let (mut halves, mut brains) = (vec![f16::ZERO; x.len()], vec![bf16::ZERO; x.len()]);
            to_f16(cpu, &x, &mut halves);
            to_bf16(cpu, &x, &mut brains);
            (halves, brains)
        });
        assert!(want.0.iter().zip(&got.0).all(|(w, g)| w == g || w.is_nan() && g.is_nan()));
        assert!(want.1.iter().zip(&got.1).all(|(w, g)| w == g || w.is_nan() && g.is_nan()));
    }
}

#[test]
fn index_select_takes_the_best_blocks_and_the_lower_of_equals() {
    // One head of size 1 whose query is 1: the score of a block is its key, if positive.
    let keys: Vec<f32> = vec![0.5, -1.0, 3.0, 0.5, -2.0, 2.0, 9.0, 0.0, 1.0, 0.5, 0.25, 7.0];
    let pages = [Floats::F32(&keys[..5]), Floats::F32(&keys[5..10]), Floats::F32(&keys[10..])];
    for cpu in all_isas(1) {
        let select = |first_position, top| {
            let args = IndexSelectArgs {
                q: &[1.0],
                weights: None,
                keys: &pages,
                page_rows: 5,
                first_position,
                block: 4,
                top,
                heads: 1,
                d: 1,
                scale: 1.0,
            };
            let mut out = vec![0; top];
            index_select(&cpu, &args, &mut out);
            out
        };
        assert_eq!(select(47, 4), [2, 5, 6, 11]);
        assert_eq!(select(46, 4), [2, 5, 6, 8]);
        // 0.5 three times and two places: the first two.
        assert_eq!(select(42, 6), [0, 2, 3, 5, 6, 8]);
        // Scores of 0 fill up from below.
        assert_eq!(select(19, 4), [0, 1, 2, 3]);
        assert_eq!(select(11, 4), [0, 1, 2, u32::MAX]);
        assert_eq!(select(2, 2), [u32::MAX, u32::MAX]);
    }
}

#[test]
fn attention_over_all_blocks_is_dense_attention() {
    let mut random = Random(3);
    let (rows, block, d) = (60, 24, 16);
    let (keys, values) = (random.floats(rows * d), random.floats(rows * d));
    let (keys, values, q) = ([Floats::F32(&keys)], [Floats::F32(&values)], random.floats(2 * d));
    let ids = [0, 1];
    for cpu in all_isas(1) {
        let run = |selection| {
            let args = AttentionArgs {
                q: &q,
                keys: &keys,
                values: &values,
                page_rows: rows,
                first_position: 57,
                kv_heads: 1,
                heads: 2,
                d,
                dv: d,
                scale: 1.0,
                selection,
            };
            filled(2 * d, |out| attention(&cpu, &args, out))
        };
        let selected = run(Some(BlockSelection { block, per_row: 2, ids: &ids }));
        assert_eq!(bits(&run(None)), bits(&selected));
    }
}

#[test]
fn reading_gives_one_checksum() {
    let bytes: Vec<u8> = (0..3_000_005u32).map(|i| (i >> 3) as u8).collect();
    let want = read_bandwidth(&Cpu::scalar(), &bytes);
    assert_eq!(read_bandwidth(&Cpu::new(3), &bytes), want);
    assert!(fma_flops(&Cpu::new(1), 1000) > 0.0);
}
