//! The test kit's model server as a process of its own, so that its work does not count as the client's.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::Bed;

/// A running server, killed when this is dropped.
pub(super) struct BenchServer {
    child: Child,
    /// Where it listens.
    pub(super) url: String,
}

impl BenchServer {
    /// Starts it with a script.
    pub(super) fn start(bed: &Bed, script: &Value) -> Result<Self> {
        let file = bed.scratch.join("script.json");
        std::fs::write(&file, script.to_string()).context("cannot write the script")?;
        let mut child = Command::new(bed.example("model-server")?)
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the model server")?;
        let stdout = child.stdout.take().context("the model server has no output")?;
        let mut server = Self { child, url: String::new() };
        BufReader::new(stdout).read_line(&mut server.url).context("the model server says nothing")?;
        server.url = server.url.trim().to_owned();
        ensure!(server.url.starts_with("http://"), "the model server did not start");
        Ok(server)
    }

    /// Holds all requests until [`BenchServer::go_on`].
    pub(super) fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Answers again.
    pub(super) fn go_on(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).context("the model server has no process id")?;
        kill(Pid::from_raw(pid), signal).context("the model server is gone")
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        // Best effort: it may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
