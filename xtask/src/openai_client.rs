//! The official OpenAI Python client against a running demo server, unchanged, from PyPI.

use std::net::TcpListener;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::{python, tree};

const REQUIREMENTS: &str = "xtask/python/openai_client_requirements.txt";
const SCRIPT: &str = "crates/ds4-http-api/tests/openai_client.py";
const START_WITHIN: Duration = Duration::from_secs(30);

/// As `run`, but a machine without Python or network only gets a note.
pub(crate) fn run_if_possible() -> anyhow::Result<()> {
    match python::environment("openai", Path::new(REQUIREMENTS)) {
        Ok(_) => run(),
        Err(error) => {
            println!("left out, there is no Python with the client: {error:#}");
            Ok(())
        }
    }
}

pub(crate) fn run() -> anyhow::Result<()> {
    let interpreter = python::environment("openai", Path::new(REQUIREMENTS))?;
    tree::run(tree::cargo().args(["build", "--quiet", "--release", "--package", "ds4-server"]))?;
    let server = Server::start()?;
    let url = format!("http://127.0.0.1:{}/v1", server.port);
    tree::run(tree::command(interpreter).arg(SCRIPT).arg(url))
}

/// The release binary serving the demo model; it ends when this is dropped.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start() -> anyhow::Result<Self> {
        // Bound and released: a port that is free now.
        let port = TcpListener::bind("127.0.0.1:0").context("no free port")?.local_addr()?.port();
        let process = tree::command(tree::target().join("release/ds4server"))
            .args(["serve", "--model", "demo", "--session-disk", "0", "--port", &port.to_string()])
            .spawn()
            .context("cannot start ds4server")?;
        let mut server = Self { process, port };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        while began.elapsed() < START_WITHIN {
            if let Some(status) = self.process.try_wait()? {
                bail!("ds4server ended with {status}");
            }
            if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("ds4server did not listen within {} s", START_WITHIN.as_secs())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to do about a failure here.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
