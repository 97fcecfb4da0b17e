//! The softmax denominator: the sum of exp((logit - max) / temperature) over a whole row in float64.
//!
//! A vocabulary has up to 250,000 entries and the sum is needed for every sampled token, so the exponential is written
//! as plain arithmetic that compiles to vector instructions on any target: Cody-Waite reduction to
//! |r| <= ln(2)/2, Taylor polynomial of degree 11, exponent bits set by an integer add. Its relative error is below
//! 1e-14; single probabilities use the standard library's `exp`.

/// Adding it to a small number leaves the rounded integer in the low mantissa bits.
const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1; // 32 trailing zero bits: n * LN_2_HIGH is exact
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// Below this the exponential is smaller than the last bit of any sum that contains 1.
const SMALLEST: f64 = -700.0;
const LANES: usize = 8;

/// Sum over the row; at least 1, since the maximum contributes exp(0). Terms of -infinity contribute (almost) nothing.
pub(crate) fn exp_sum(logits: &[f32], max: f32, temperature: f64) -> f64 {
    let max = f64::from(max);
    let inverse = 1.0 / temperature;
    let groups = logits.chunks_exact(LANES);
    let rest: f64 = groups.remainder().iter().map(|&logit| exp((f64::from(logit) - max) * inverse)).sum();
    let mut sums = [0.0f64; LANES];
    for group in groups {
        for lane in 0..LANES {
            sums[lane] += exp((f64::from(group[lane]) - max) * inverse);
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// exp(x) for x <= 0, with a relative error below 1e-14 above [`SMALLEST`].
#[inline(always)]
fn exp(x: f64) -> f64 {
    let x = if x > SMALLEST { x } else { SMALLEST };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut p = 1.0 / 39_916_800.0;
    for coefficient in [
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        p = p * r + coefficient;
    }
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits());
    p * f64::from_bits(exponent.wrapping_add(1023) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_within_1e_14_of_the_standard_library() {
        let worst = (0..200_000)
            .map(|i| -690.0 * f64::from(i) / 200_000.0)
            .map(|x| (exp(x) / x.exp() - 1.0).abs())
            .fold(0.0, f64::max);
        assert!(worst < 1e-14, "{worst:e}");
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f64::NEG_INFINITY) < 1e-300);
    }

    #[test]
    fn odd_lengths_and_masks_are_summed() {
        for length in 1..40 {
            let mut row: Vec<f32> = (0..length).map(|i| -(i as f32) / 3.0).collect();
            row[length / 2] = if length > 1 { f32::NEG_INFINITY } else { 0.0 };
            let max = if row[0] == f32::NEG_INFINITY { row[1] } else { row[0] };
            let expected: f64 = row.iter().map(|&l| ((f64::from(l) - f64::from(max)) / 0.7).exp()).sum();
            assert!((exp_sum(&row, max, 0.7) / expected - 1.0).abs() < 1e-13, "{length}");
        }
    }
}
