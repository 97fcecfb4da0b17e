//! Threads on cores of their own.

use std::io;

/// Keeps the calling thread, and those that it starts from now on, on one of the cores that it may use: the one with this number
/// among them, counted round if there are fewer. An error if the system does not allow it, or has no way to ask for it.
#[cfg(target_os = "linux")]
pub(crate) fn keep_on(number: usize) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    let core = number.checked_rem(cores.len()).ok_or(io::ErrorKind::NotFound)?;
    let mut one = CpuSet::new();
    one.set(cores[core]);
    Ok(sched_setaffinity(None, &one)?)
}

/// Not possible here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn keep_on(_: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_on_one_core_whatever_its_number() {
        for number in [0, 1, 1000] {
            let cores = std::thread::spawn(move || {
                keep_on(number).unwrap();
                rustix::thread::sched_getaffinity(None).unwrap().count()
            });
            assert_eq!(cores.join().unwrap(), 1);
        }
    }
}
