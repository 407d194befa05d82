//! The setup command of a new worktree: one shell line of the user's settings, with a time limit.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::git::{GitOptions, apply_environment, end_group};

/// How long a setup command may take unless the request says otherwise.
pub const SETUP_SECONDS: u64 = 600;
/// How much of the end of its output is kept for the error.
const OUTPUT_CAP: usize = 8 * 1024;

/// A command that runs in the new worktree before anybody uses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// For `sh -c`.
    pub command: String,
    /// Its limit.
    #[serde(default = "setup_seconds")]
    pub timeout_seconds: u64,
}

fn setup_seconds() -> u64 {
    SETUP_SECONDS
}

/// Runs it to its end; an error carries the end of what it printed.
pub(crate) async fn run(
    setup: &Setup,
    worktree: &Path,
    root: &Path,
    options: &GitOptions,
    cancel: &CancellationToken,
) -> Result<()> {
    // One pipe for both streams, so that the output is in the order in which it was printed.
    let (mut reader, writer) = pipe()?;
    let mut command = tokio::process::Command::new("sh");
    command.arg("-c").arg(&setup.command).current_dir(worktree);
    apply_environment(&mut command, options);
    command.env("CALIBAN_WORKTREE", worktree).env("CALIBAN_REPO_ROOT", root);
    let second = writer.try_clone().map_err(|e| Error::io("starting the setup command", e))?;
    command.stdin(Stdio::null()).stdout(Stdio::from(writer)).stderr(Stdio::from(second));
    let child = command.spawn();
    // The command keeps the pipe's writing end; without this the reader would never see its end.
    drop(command);
    let mut child = child.map_err(|e| Error::io("starting the setup command", e))?;
    let output = std::sync::Mutex::new(Vec::new());
    let read = async {
        let mut buffer = vec![0; 4096];
        while let Ok(n @ 1..) = reader.read(&mut buffer).await {
            if let Ok(mut output) = output.lock() {
                output.extend_from_slice(&buffer[..n]);
                let over = output.len().saturating_sub(OUTPUT_CAP);
                output.drain(..over);
            }
        }
    };
    enum Ending {
        Exited(std::io::Result<std::process::ExitStatus>),
        TooLong,
        Cancelled,
    }
    let ending = {
        // A daemon that the command leaves behind holds the pipe; only the command itself is waited for.
        let wait = async {
            tokio::pin!(read);
            tokio::select! {
                status = child.wait() => {
                    let _rest = tokio::time::timeout(Duration::from_millis(200), &mut read).await;
                    status
                }
                () = &mut read => child.wait().await,
            }
        };
        tokio::select! {
            status = wait => Ending::Exited(status),
            () = tokio::time::sleep(Duration::from_secs(setup.timeout_seconds)) => Ending::TooLong,
            () = cancel.cancelled() => Ending::Cancelled,
        }
    };
    let ending = match ending {
        Ending::Exited(Ok(status)) if status.success() => return Ok(()),
        Ending::Exited(Ok(status)) => match status.code() {
            Some(code) => format!("failed with exit code {code}"),
            None => format!("ended by {status}"),
        },
        Ending::Exited(Err(e)) => return Err(Error::io("waiting for the setup command", e)),
        Ending::TooLong => {
            end_group(&mut child).await;
            format!("took longer than {} s and was ended", setup.timeout_seconds)
        }
        Ending::Cancelled => {
            end_group(&mut child).await;
            return Err(Error::Cancelled);
        }
    };
    let output = output.into_inner().unwrap_or_default();
    let output = String::from_utf8_lossy(&output).trim_end().to_owned();
    Err(Error::Setup { command: setup.command.clone(), ending, output })
}

fn pipe() -> Result<(tokio::net::unix::pipe::Receiver, std::io::PipeWriter)> {
    let open = || {
        let (reader, writer) = std::io::pipe()?;
        Ok((tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into())?, writer))
    };
    open().map_err(|e: std::io::Error| Error::io("starting the setup command", e))
}
