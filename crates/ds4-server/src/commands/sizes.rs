//! Numbers for people.

/// Bytes in the largest unit that fits, for example `16.6 MB`; units are powers of 1000, as on disk labels.
pub(super) fn bytes(count: u64) -> String {
    scaled(count, &["bytes", "kB", "MB", "GB", "TB"])
}

/// A count in the usual short form, for example `8.3 M`.
pub(super) fn count(count: u64) -> String {
    scaled(count, &["", "k", "M", "B", "T"]).trim_end().to_owned()
}

fn scaled(count: u64, units: &[&str]) -> String {
    let mut value = count as f64;
    let mut unit = 0;
    // 999.95 would be shown as 1000.0.
    while value >= 999.95 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} {}", units[0]) } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_the_size() {
        let shown = [0, 999, 1000, 16_581_168, 999_960_000, 85_000_000_000].map(bytes);
        assert_eq!(shown, ["0 bytes", "999 bytes", "1.0 kB", "16.6 MB", "1.0 GB", "85.0 GB"]);
        assert_eq!([512, 8_290_584].map(count), ["512", "8.3 M"]);
    }
}
