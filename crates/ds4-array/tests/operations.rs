//! Every operation once, with values that can be checked by hand, on both backends.
#![allow(clippy::unwrap_used, reason = "tests only")]

use ds4_array::ops::{self, BlockSelection, Weight};
use ds4_array::{Array, DType, Device, Stream};

/// Runs `test` on the reference backend and on the CPU backend.
fn on_both(test: impl Fn(&Stream)) {
    for device in [Device::reference(), Device::cpu(2)] {
        test(&Stream::new(&device));
    }
}

fn f32s(stream: &Stream, values: &[f32], shape: &[usize]) -> Array {
    Array::from_slice(stream, values, shape).unwrap()
}

fn u32s(stream: &Stream, values: &[u32], shape: &[usize]) -> Array {
    Array::from_slice(stream, values, shape).unwrap()
}

#[track_caller]
fn near(array: &Array, expected: &[f32]) {
    let actual = array.to_vec::<f32>().unwrap();
    assert_eq!(actual.len(), expected.len());
    let off = actual.iter().zip(expected).any(|(a, b)| (a - b).abs() > 4.0 * f32::EPSILON * b.abs().max(1.0));
    assert!(!off, "{actual:?} instead of {expected:?}");
}

#[test]
fn elementwise_operations_broadcast_rows_and_columns() {
    on_both(|s| {
        let x = f32s(s, &[1.0, 2.0, 3.0, 4.0], &[2, 2]);
        near(&ops::add(&x, &f32s(s, &[10.0, 20.0], &[2])).unwrap(), &[11.0, 22.0, 13.0, 24.0]);
        near(&ops::mul(&x, &f32s(s, &[10.0, 20.0], &[2, 1])).unwrap(), &[10.0, 20.0, 60.0, 80.0]);
        near(&ops::div(&x, &x).unwrap(), &[1.0; 4]);
        near(&ops::sub(&x, &x).unwrap(), &[0.0; 4]);
        near(&ops::maximum(&x, &f32s(s, &[2.5, 2.5], &[2])).unwrap(), &[2.5, 2.5, 3.0, 4.0]);
        near(&ops::scale(&x, 0.5).unwrap(), &[0.5, 1.0, 1.5, 2.0]);
        near(&ops::signed_sqrt(&f32s(s, &[-4.0, 0.0, 9.0], &[3])).unwrap(), &[-2.0, 0.0, 3.0]);
        near(&ops::abs(&f32s(s, &[-4.0, 3.0], &[2])).unwrap(), &[4.0, 3.0]);
        near(&ops::softplus(&f32s(s, &[0.0, 100.0], &[2])).unwrap(), &[2f32.ln(), 100.0]);
        let (zero, one) = (f32s(s, &[0.0, 0.0], &[2]), f32s(s, &[4.0, 6.0], &[2]));
        near(&ops::sigmoid_gate(&one, &zero).unwrap(), &[2.0, 3.0]);
        near(&ops::swiglu(&zero, &one).unwrap(), &[0.0, 0.0]);
        near(&ops::silu(&zero).unwrap(), &[0.0, 0.0]);
    });
}

#[test]
fn scaled_functions_have_the_bits_of_their_parts() {
    on_both(|s| {
        let x = f32s(s, &[-3.0, -0.1, 0.0, 0.7, 2.5, 90.0], &[2, 3]);
        let bits = |x: &Array| x.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let third = ops::scale(&x, 1.0 / 3.0).unwrap();
        let parts = ops::scale(&ops::sigmoid(&third).unwrap(), 1.9).unwrap();
        assert_eq!(bits(&ops::scaled_sigmoid(&x, 1.0 / 3.0, 1.9).unwrap()), bits(&parts));
        let parts = ops::silu(&third).unwrap();
        assert_eq!(bits(&ops::scaled_silu(&x, 1.0 / 3.0).unwrap()), bits(&parts));
    });
}

#[test]
fn linear_multiplies_with_the_transposed_weight_in_every_format() {
    on_both(|s| {
        let x = f32s(s, &[1.0; 32], &[1, 32]);
        let weight: Vec<f32> = (0..64).map(|i| if i < 32 { 1.0 } else { 0.25 }).collect();
        let dense = f32s(s, &weight, &[2, 32]);
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let weight = Weight::dense(ops::as_type(&dense, dtype).unwrap());
            near(&ops::linear(&x, &weight).unwrap(), &[32.0, 8.0]);
        }
        // Each nibble is 3: value = 0.5 * 3 + 1 and 2 * 3 - 1.
        let packed = u32s(s, &[0x3333_3333; 8], &[2, 4]);
        let scales = f32s(s, &[0.5, 2.0], &[2, 1]);
        let biases = f32s(s, &[1.0, -1.0], &[2, 1]);
        let weight = Weight::affine(packed, scales, biases, 4, 32).unwrap();
        near(&ops::linear(&x, &weight).unwrap(), &[80.0, 160.0]);
        near(&ops::gather_rows(&weight, &u32s(s, &[1], &[1])).unwrap(), &[5.0; 32]);
    });
}

#[test]
fn experts_get_their_tokens_and_give_them_back() {
    on_both(|s| {
        // Two tokens, two experts each out of three; expert e multiplies by e + 1.
        let x = f32s(s, &[1.0, 10.0], &[2, 1]);
        let ids = u32s(s, &[2, 0, 1, 2], &[2, 2]);
        let weight = Weight::dense(f32s(s, &[1.0, 2.0, 3.0], &[3, 1, 1]));
        let order = ops::sort_by_expert(&ids, 3).unwrap();
        assert_eq!(order.rows.to_vec::<u32>().unwrap(), [0, 1, 0, 1]);
        assert_eq!(order.offsets.to_vec::<u32>().unwrap(), [0, 1, 2, 4]);
        let y = ops::grouped_linear(&x, Some(&order.rows), &order.offsets, &weight).unwrap();
        near(&y, &[1.0, 20.0, 3.0, 30.0]);
        let again = ops::grouped_linear(&y, None, &order.offsets, &weight).unwrap();
        near(&again, &[1.0, 40.0, 9.0, 90.0]);
        let weights = f32s(s, &[1.0, 0.5, 0.25, 2.0], &[2, 2]);
        near(&ops::combine_experts(&y, &order, &weights).unwrap(), &[3.5, 65.0]);
    });
}

#[test]
fn norms_reductions_and_selections() {
    on_both(|s| {
        let x = f32s(s, &[3.0, 4.0, 0.0, 5.0], &[1, 4]);
        near(&ops::l2_norm(&f32s(s, &[3.0, 4.0], &[1, 2]), 0.0, 2.0).unwrap(), &[1.2, 1.6]);
        let weight = f32s(s, &[0.0, 1.0, 0.0, 1.0], &[4]);
        let root = (12.5f32).sqrt();
        let normed = ops::rms_norm(&x, Some(&weight), 1.0, 2, 0.0).unwrap();
        near(&normed, &[3.0 / root, 8.0 / root, 0.0, 10.0 / root]);
        near(&ops::sum(&x).unwrap(), &[12.0]);
        near(&ops::mean(&x).unwrap(), &[3.0]);
        near(&ops::max(&x).unwrap(), &[5.0]);
        near(&ops::mean_middle(&f32s(s, &[1.0, 2.0, 3.0, 4.0], &[1, 2, 2])).unwrap(), &[2.0, 3.0]);
        near(&ops::softmax(&f32s(s, &[0.0, 0.0], &[1, 2])).unwrap(), &[0.5, 0.5]);
        let tied = f32s(s, &[1.0, 7.0, 1.0, 7.0], &[1, 4]);
        let best = ops::top_k(&tied, 3).unwrap();
        assert_eq!(best.to_vec::<u32>().unwrap(), [1, 3, 0], "lower ids first among equals");
        near(&ops::take_along(&tied, &best).unwrap(), &[7.0, 7.0, 1.0]);
    });
}

#[test]
fn rope_turns_pairs_of_the_first_dimensions() {
    on_both(|s| {
        let x = f32s(s, &[1.0, 0.0, 9.0], &[1, 1, 3]);
        let (cos, sin) = (f32s(s, &[0.0], &[1, 1]), f32s(s, &[1.0], &[1, 1]));
        near(&ops::rope(&x, &cos, &sin).unwrap(), &[0.0, 1.0, 9.0]);
    });
}

#[test]
fn a_convolution_looks_back_into_its_history() {
    on_both(|s| {
        // Two sequences: one with two rows, one with a single row.
        let (first, second) = (f32s(s, &[1.0, 2.0], &[2, 1]), f32s(s, &[7.0, 8.0], &[2, 1]));
        let x = f32s(s, &[3.0, 4.0, 5.0], &[3, 1]);
        let weight = f32s(s, &[100.0, 1.0], &[2, 1]);
        let (y, next) = ops::causal_conv1d(&x, &[&first, &second], [2, 1], &weight, 2, false).unwrap();
        near(&y, &[103.0, 204.0, 705.0]);
        near(&next[0], &[3.0, 4.0]);
        near(&next[1], &[8.0, 5.0]);
    });
}

#[test]
fn the_delta_rule_overwrites_what_a_key_held() {
    on_both(|s| {
        let one = |v: f32| f32s(s, &[v, v], &[2, 1, 1]);
        let q = one(1.0);
        let v = f32s(s, &[3.0, 5.0], &[2, 1, 1]);
        let (g, beta) = (f32s(s, &[0.0, 0.0], &[2, 1]), f32s(s, &[1.0, 0.5], &[2, 1]));
        let state = f32s(s, &[1.0], &[1, 1, 1]);
        let (out, next) = ops::gated_delta([&q, &q, &v, &g, &beta], &[&state], [2]).unwrap();
        // 1 becomes 3 (beta 1), then goes half the way to 5.
        near(&out, &[3.0, 4.0]);
        near(&next[0], &[4.0]);
        near(&state, &[1.0]);
        // As the tokens of two sequences, the second goes from 1 half the way to 5.
        let (out, next) = ops::gated_delta([&q, &q, &v, &g, &beta], &[&state, &state], [1, 1]).unwrap();
        near(&out, &[3.0, 3.0]);
        near(&next[0], &[3.0]);
        near(&next[1], &[3.0]);
        assert!(ops::gated_delta([&q, &q, &v, &g, &beta], &[&state], [1]).is_err());
    });
}

#[test]
fn attention_is_causal_and_selects_blocks() {
    on_both(|s| {
        // Keys are all alike, so that attention is a mean over the visible values 0, 1, .. 5 in two pages of 4 rows.
        let q = f32s(s, &[0.0, 0.0], &[2, 1, 1]);
        let page = |from: f32| f32s(s, &[from, from + 1.0, from + 2.0, from + 3.0], &[4, 1, 1]);
        let keys = [page(0.0), page(4.0)];
        let all = ops::attention(&q, &keys, &keys, None, 4, 1.0).unwrap();
        near(&all, &[2.0, 2.5]);
        let ids = u32s(s, &[1, u32::MAX, 0, 2], &[2, 2]);
        let selection = Some(BlockSelection { ids: &ids, block: 2 });
        // Position 4 sees block 1 (2, 3) and its tail (4); position 5 sees blocks 0 and 2, and has no tail.
        let some = ops::attention(&q, &keys, &keys, selection, 4, 1.0).unwrap();
        near(&some, &[3.0, 2.5]);
    });
}

#[test]
fn an_index_prefers_lower_blocks_among_equals() {
    on_both(|s| {
        let q = f32s(s, &[1.0, 1.0], &[2, 1, 1]);
        // Block keys: negative ones all score exactly 0.
        let keys = [f32s(s, &[-1.0, -2.0, 5.0, -3.0], &[4, 1])];
        let ids = ops::index_select(&q, None, &keys, 6, 2, 2, 1.0).unwrap();
        assert_eq!(ids.to_vec::<u32>().unwrap(), [0, 2, 0, 2]);
        let early = ops::index_select(&q, None, &keys, 0, 2, 2, 1.0).unwrap();
        assert_eq!(early.to_vec::<u32>().unwrap(), [u32::MAX, u32::MAX, 0, u32::MAX]);
    });
}

#[test]
fn streams_are_mixed_and_written_back() {
    on_both(|s| {
        let h = f32s(s, &[1.0, 2.0, 3.0, 4.0], &[1, 4]);
        let zero = ops::fill(s, [1, 4], DType::F32, 0.0);
        near(&ops::stream_mix(&zero, &h, 2).unwrap(), &[1.0, 1.5]);
        let (y, inject) = (f32s(s, &[10.0, 20.0], &[1, 2]), f32s(s, &[1.0, 0.5], &[1, 2]));
        near(&ops::stream_inject(&h, &y, &inject).unwrap(), &[11.0, 22.0, 8.0, 14.0]);
    });
}

#[test]
fn formats_convert_with_rounding_to_nearest_even() {
    on_both(|s| {
        let x = f32s(s, &[1.0, 1.0 + f32::EPSILON, -2.5], &[3]);
        for dtype in [DType::BF16, DType::F16] {
            let there = ops::as_type(&x, dtype).unwrap();
            assert_eq!(there.dtype(), dtype);
            near(&ops::as_type(&there, DType::F32).unwrap(), &[1.0, 1.0, -2.5]);
        }
        let half = ops::as_type(&x, DType::F16).unwrap();
        near(
            &ops::as_type(&ops::as_type(&half, DType::BF16).unwrap(), DType::F32).unwrap(),
            &[1.0, 1.0, -2.5],
        );
    });
}
