//! The program as a server, and a client of a few lines.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sandbox::Sandbox;

/// A running server. It ends when this is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) stderr: BufReader<ChildStderr>,
    address: String,
    /// What it wrote before its address.
    pub(crate) warnings: String,
    _sandbox: Option<Sandbox>,
}

impl Server {
    /// A server in a folder of its own.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let sandbox = Sandbox::new();
        let mut server = Self::start_in(&sandbox, arguments);
        server._sandbox = Some(sandbox);
        server
    }

    /// A server in a folder that others use too.
    pub(crate) fn start_in(sandbox: &Sandbox, arguments: &[&str]) -> Self {
        let arguments = [&["serve", "--port", "0"], arguments].concat();
        let mut process = sandbox.command(&arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(process.stderr.take().unwrap());
        let mut warnings = String::new();
        let address = loop {
            let mut line = String::new();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "no address in {warnings:?}");
            match line.split_once("http://").and_then(|(_, rest)| rest.split('/').next()) {
                Some(address) => break address.to_owned(),
                None => warnings.push_str(&line),
            }
        };
        Self { process, stderr, address, warnings, _sandbox: None }
    }

    /// Sends a request; the response can be read from what is returned.
    pub(crate) fn open(&self, head: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{head}\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}",
            self.address
        )
        .unwrap();
        stream
    }

    /// Sends a request and returns the status and the body.
    pub(crate) fn request(&self, head: &str, body: &str) -> (u16, String) {
        let mut stream = self.open(head, body);
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let status = response.split(' ').nth(1).unwrap().parse().unwrap();
        (status, response.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    pub(crate) fn chat(&self, request: &Value) -> Value {
        let (status, body) = self.request("POST /v1/chat/completions HTTP/1.1", &request.to_string());
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Where the system tells of the thread of this name.
    #[cfg(target_os = "linux")]
    pub(crate) fn thread(&self, name: &str) -> Option<std::path::PathBuf> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let mut threads = threads.map(|thread| thread.unwrap().path());
        threads.find(|thread| {
            std::fs::read_to_string(thread.join("comm")).is_ok_and(|found| found.trim() == name)
        })
    }

    #[cfg(unix)]
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits for the end and returns the exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the server still runs")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has usually ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
