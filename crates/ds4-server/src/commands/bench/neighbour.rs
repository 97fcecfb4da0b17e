//! Another program that wants a core all the time: this one, started again to spin.
//!
//! It ends when it is dropped, and by itself when the pipe to it closes, however this process ends.

use std::hint::black_box;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::cores;

/// How long it takes a scheduler to have noticed the newcomer.
const SETTLE: Duration = Duration::from_millis(200);

pub(super) struct Neighbour(Child);

impl Neighbour {
    /// Starts one and waits until it is at work.
    pub(super) fn start() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("where is this program?")?;
        let child = Command::new(program)
            .args(["bench", "--spin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start a program beside the measurement")?;
        std::thread::sleep(SETTLE);
        Ok(Self(child))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the neighbour does: keeps the first core busy until standard input ends.
pub(super) fn spin() -> ! {
    // Where that is not possible, the scheduler chooses the core.
    let _ = cores::keep_on(0);
    std::thread::spawn(|| {
        loop {
            black_box(0_u64);
        }
    });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}
