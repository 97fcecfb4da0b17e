//! `completions`: a script that teaches a shell the command line.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::flags::Cli;
use crate::output;

pub(super) fn run(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ds4server", &mut script);
    output::stdout(&String::from_utf8_lossy(&script))?;
    Ok(())
}
