//! Numbers from the command line that must lie in a range. NaN lies in none.

/// A finite number of at least 0.
pub(super) fn not_negative(text: &str) -> Result<f64, String> {
    number(text, 0.0..=f64::MAX, "a number from 0 on")
}

/// A number from 0 to 1.
pub(super) fn unit(text: &str) -> Result<f64, String> {
    number(text, 0.0..=1.0, "a number from 0 to 1")
}

/// A whole number of at least 1.
pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|&count| count >= 1)
        .ok_or_else(|| "expected a whole number from 1 on".to_owned())
}

fn number(text: &str, range: std::ops::RangeInclusive<f64>, expected: &str) -> Result<f64, String> {
    let value: Option<f64> = text.parse().ok();
    value.filter(|value| range.contains(value)).ok_or_else(|| format!("expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_in_range_is_refused() {
        for text in ["nan", "inf", "-0.1", "", "1,5"] {
            assert_eq!(not_negative(text), Err("expected a number from 0 on".to_owned()), "{text}");
        }
        assert_eq!(not_negative("1.5"), Ok(1.5));
        assert!(unit("1.5").is_err() && unit("NaN").is_err());
        assert!(at_least_one("0").is_err() && at_least_one("-1").is_err());
        assert_eq!(at_least_one("7"), Ok(7));
    }
}
