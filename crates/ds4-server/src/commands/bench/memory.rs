//! The most memory that this process held, as Linux counts it. Elsewhere it is not known.

use std::fs;

/// Starts a new measurement of the peak. Whether that was possible.
pub(super) fn reset_peak() -> bool {
    // "5" resets the peak of the resident set; see proc(5).
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The largest resident set since then, in bytes.
pub(super) fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The processor's name, for the record.
pub(super) fn processor() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}
