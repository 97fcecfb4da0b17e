//! What rounding activations to 8 bits does to a product with affine weights.

mod support;

use ds4_cpu_kernels::*;
use proptest::prelude::*;
use support::*;

fn int8(isa: Isa) -> Cpu {
    Cpu::with_isa(isa, 1).expect("an instruction set of this machine").with_activations(Activations::Int8)
}

/// `x` [m, k] times the transpose of `w` [n, k], with float32 activations in plain loops.
fn exact(x: &[f32], w: Matrix<'_>, m: usize, n: usize, k: usize) -> Vec<f32> {
    filled(m * n, |out| linear(&Cpu::scalar(), x, w, m, n, k, out))
}

fn relative_error(got: &[f32], want: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let error: f64 = got.iter().zip(want).map(|(got, want)| square(f64::from(got - want))).sum();
    (error / want.iter().map(|want| square(f64::from(*want))).sum::<f64>()).sqrt()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Activations that are whole multiples of a 127th of their largest are not changed by rounding.
    #[test]
    fn activations_that_fit_are_exact(seed: u64, format in 3..FORMATS, m in 1usize..6, n in 1usize..40, k in 1usize..600) {
        let mut random = Random(seed);
        let k = Weights::fitting(format, k);
        let w = Weights::new(&mut random, format, n, k);
        let mut x: Vec<f32> = (0..m * k).map(|_| random.below(255) as f32 - 127.0).collect();
        // Groups are of 32 elements or a multiple of it.
        x.iter_mut().step_by(32).for_each(|x| *x = 127.0);
        let want = exact(&x, w.matrix(), m, n, k);
        let size = 127.0 * k as f32;
        for isa in Isa::all() {
            let got = filled(m * n, |out| linear(&int8(isa), &x, w.matrix(), m, n, k, out));
            for (got, want) in got.iter().zip(&want) {
                // A few roundings of sums of up to `size` times weights of up to 26 (8 bits with scales of 0.1).
                prop_assert!((got - want).abs() <= 26.0 * size * 8.0 * f32::EPSILON, "{isa:?}: {got} instead of {want}");
            }
        }
    }

    /// For 4-bit weights around zero, as models have them, the error is near 6e-3; a finer group is no worse.
    #[test]
    fn the_error_is_that_of_8_bits(seed: u64, group in 0usize..3) {
        let mut random = Random(seed);
        let (n, k) = (64, 1024);
        let groups = n * k / [32, 64, 128][group];
        let weights = Weights::Affine {
            bits: 4,
            group: [32, 64, 128][group],
            packed: (0..n * k / 8).map(|_| random.bits() as u32).collect(),
            scales: Stored::new(2, &vec![0.015625; groups]),
            biases: Stored::new(2, &vec![-0.1171875; groups]),
        };
        let x = random.floats(k);
        let want = exact(&x, weights.matrix(), 1, n, k);
        let got = filled(n, |out| linear(&int8(Isa::best()), &x, weights.matrix(), 1, n, k, out));
        let error = relative_error(&got, &want);
        prop_assert!((1e-3..8e-3).contains(&error), "relative error {error:.1e}");
    }
}

#[test]
fn what_is_not_a_number_shows_and_what_is_tiny_is_zero() {
    let mut random = Random(1);
    let (n, k) = (9, 256);
    for format in 3..FORMATS {
        let w = Weights::new(&mut random, format, n, k);
        for isa in Isa::all() {
            let product = |x: &[f32]| filled(n, |out| linear(&int8(isa), x, w.matrix(), 1, n, k, out));
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut x = random.floats(k);
                x[77] = bad;
                assert!(product(&x).iter().all(|y| y.is_nan()), "{isa:?} hides {bad}");
            }
            assert!(product(&vec![0.0; k]).iter().all(|y| *y == 0.0));
            assert!(product(&vec![1e-38; k]).iter().all(|y| *y == 0.0));
        }
    }
}

/// Kernels take groups by fours and eights, weight rows by eights, and read beyond the end of a row where that is allowed.
#[test]
fn any_number_of_groups_gives_the_bits_of_plain_loops() {
    let mut random = Random(1);
    for format in 3..FORMATS {
        let group = Weights::fitting(format, 1);
        for groups in (1..=18).chain([23, 63, 64, 65, 69, 130]) {
            for (m, n) in [(1, 1), (1, 70), (2, 9), (3, 33), (4, 8), (4, 23), (5, 7)] {
                let k = groups * group;
                let (w, x) = (Weights::new(&mut random, format, n, k), random.floats(m * k));
                let product = |isa| filled(m * n, |out| linear(&int8(isa), &x, w.matrix(), m, n, k, out));
                let want = bits(&product(Isa::Scalar));
                for isa in Isa::all() {
                    assert_eq!(
                        bits(&product(isa)),
                        want,
                        "{isa:?}, format {format}, {groups} groups, {m} rows, {n} columns"
                    );
                }
            }
        }
    }
}
