//! Amounts with a unit on the command line: bytes and times.

use std::time::Duration;

const BYTES: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

const SECONDS: [(&str, u64); 5] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 604_800)];

/// Bytes, such as `0`, `500MB` or `1.5 GiB`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    amount(text, &BYTES).ok_or_else(|| "expected a size such as 0, 500MB or 16GiB".to_owned())
}

/// A time, such as `12h` or `30d`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = amount(text, &SECONDS).ok_or_else(|| "expected a time such as 12h, 30d or 8w".to_owned());
    seconds.map(Duration::from_secs)
}

fn amount(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let unit = unit.trim_start().to_ascii_lowercase();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    // Whole numbers stay exact; fractions are wanted of large units only, where a rounded byte is no matter.
    match number.parse::<u64>() {
        Ok(number) => number.checked_mul(*factor),
        Err(_) => {
            let amount = number.parse::<f64>().ok()? * *factor as f64;
            (amount < u64::MAX as f64).then_some(amount as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_both_kinds() {
        let read = ["0", "500MB", "16GiB", "1.5 kib", "7b"].map(|text| size(text).unwrap());
        assert_eq!(read, [0, 500_000_000, 16 << 30, 1536, 7]);
        for text in ["", "GiB", "-1", "1 parsec", "1.2.3k", "99999999999TiB", "nan"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(duration("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert!(duration("30").is_err());
    }
}
