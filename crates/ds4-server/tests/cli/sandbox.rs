//! A fresh folder in which the program runs, away from the settings of whoever runs the tests.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The folder. It goes when this is dropped.
pub(crate) struct Sandbox {
    folder: tempfile::TempDir,
}

/// What a run of the program left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, contents: &str) {
        fs::write(self.path(name), contents).unwrap();
    }

    /// The program with arguments, nothing on its standard input.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ds4server"));
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        for variable in ["DS4_MODEL", "DS4_API_KEY", "DS4_LOG", "NO_COLOR", "COLUMNS"] {
            command.env_remove(variable);
        }
        command.env("XDG_STATE_HOME", self.path("state"));
        command
    }

    /// Runs the program.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        ran(self.command(arguments).output().unwrap())
    }

    /// Runs the program with something on its standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        ran(child.wait_with_output().unwrap())
    }

    /// A copy of the demo model's folder.
    pub(crate) fn demo_copy(&self, name: &str) -> PathBuf {
        let copy = self.path(name);
        fs::create_dir(&copy).unwrap();
        for entry in fs::read_dir(demo_folder()).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != "golden.safetensors" {
                fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
            }
        }
        copy
    }
}

impl Ran {
    /// The run, if it succeeded.
    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// What a run that failed with this code wrote to standard error. It wrote nothing to standard output.
    #[track_caller]
    pub(crate) fn failed_with(self, code: i32) -> String {
        assert_eq!((self.code, self.stdout.as_str()), (Some(code), ""), "{self:?}");
        self.stderr
    }
}

pub(crate) fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The bundled model as a folder.
pub(crate) fn demo_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/qwen4_exp")
}
