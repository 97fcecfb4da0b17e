//! Pearson's chi-square test of counts against probabilities.

/// Cells expected to hold fewer are pooled: the statistic's distribution is an approximation for large cells.
const SMALLEST_CELL: f64 = 5.0;

/// A sum of statistics of independent samples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ChiSquare {
    /// The statistic.
    pub statistic: f64,
    /// Its degrees of freedom.
    pub degrees: f64,
    /// Counted values.
    pub samples: u64,
}

impl ChiSquare {
    /// Adds a sample: how often each value came, and how probable it is. Panics if an impossible value came.
    pub fn add(&mut self, counts: &[u64], probabilities: &[f64]) {
        let samples: u64 = counts.iter().sum();
        let (mut statistic, mut cells) = (0.0, 0);
        let mut cell = |count: f64, mean: f64| {
            statistic += (count - mean).powi(2) / mean;
            cells += 1;
        };
        let (mut rare, mut rare_mean) = (0.0, 0.0);
        for (value, (&count, probability)) in counts.iter().zip(probabilities).enumerate() {
            let mean = samples as f64 * probability;
            assert!(mean > 0.0 || count == 0, "value {value} came {count} times and is impossible");
            if mean >= SMALLEST_CELL {
                cell(count as f64, mean);
            } else {
                (rare, rare_mean) = (rare + count as f64, rare_mean + mean);
            }
        }
        if rare_mean >= SMALLEST_CELL {
            cell(rare, rare_mean);
        }
        if cells >= 2 {
            self.statistic += statistic;
            self.degrees += f64::from(cells - 1);
            self.samples += samples;
        }
    }

    /// The chance of a statistic at least this large if the probabilities are right, by the approximation of Wilson and
    /// Hilferty (1931): the cube root of chi-square over its degrees is nearly normal.
    pub fn p_value(&self) -> f64 {
        let spread = 2.0 / (9.0 * self.degrees);
        let z = ((self.statistic / self.degrees).cbrt() - (1.0 - spread)) / spread.sqrt();
        upper_tail(z)
    }
}

/// The chance that a standard normal value exceeds `z`: the continued fraction of Laplace in the tail, the power series of
/// the density's integral in the middle.
fn upper_tail(z: f64) -> f64 {
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if z < 0.0 {
        return 1.0 - upper_tail(-z);
    }
    if z > 3.0 {
        let fraction = (1..=60).rev().fold(z, |below, k| z + f64::from(k) / below);
        return density / fraction;
    }
    let (mut term, mut sum) = (z, z);
    for k in 1..100 {
        term *= z * z / f64::from(2 * k + 1);
        sum += term;
    }
    0.5 - density * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_of_the_normal_distribution() {
        for (z, expected) in [(0.0, 0.5), (1.0, 0.158_655_25), (-1.0, 0.841_344_75), (4.753_424, 1e-6)] {
            assert!((upper_tail(z) / expected - 1.0).abs() < 1e-5, "{z}: {}", upper_tail(z));
        }
    }

    #[test]
    fn p_values_of_a_table() {
        // 5 % quantiles of chi-square with 10 and 100 degrees of freedom.
        for (statistic, degrees) in [(18.307, 10.0), (124.342, 100.0)] {
            let p = ChiSquare { statistic, degrees, samples: 1 }.p_value();
            assert!((p - 0.05).abs() < 0.001, "{p}");
        }
    }

    #[test]
    fn a_biased_sample_is_found_and_a_fair_one_is_not() {
        let test = |counts: &[u64]| {
            let mut test = ChiSquare::default();
            test.add(counts, &[0.5, 0.3, 0.2]);
            test.p_value()
        };
        assert!(test(&[5000, 3000, 2000]) > 0.99);
        assert!(test(&[5300, 2800, 1900]) < 1e-6);
    }
}
