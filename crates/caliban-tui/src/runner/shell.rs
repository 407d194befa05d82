//! Runs a command of the person's: in the session's directory, with the person's environment, in a process group of its own.

use std::{
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{io::AsyncReadExt as _, net::unix::pipe, process::Command, sync::oneshot};

use crate::events::AgentEvent;

/// Bytes of an output that are kept, from its beginning and from its end.
const KEPT: usize = 256 * 1024;

/// Runs the command until it has ended, or `stop` comes or is dropped.
pub(super) async fn run(
    shell: PathBuf,
    command: String,
    cwd: PathBuf,
    stop: oneshot::Receiver<()>,
) -> AgentEvent {
    match capture(&shell, &command, &cwd, stop).await {
        Ok((output, status)) => {
            let ending = match (status.code(), std::os::unix::process::ExitStatusExt::signal(&status)) {
                (Some(code), _) => format!("exit {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => status.to_string(),
            };
            AgentEvent::ShellEnded { output, ending, is_ok: status.success() }
        }
        Err(error) => {
            AgentEvent::ShellEnded { output: String::new(), ending: error.to_string(), is_ok: false }
        }
    }
}

/// A process group that is ended with everything in it when this is dropped.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended by itself.
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
}

async fn capture(
    shell: &Path,
    command: &str,
    cwd: &Path,
    mut stop: oneshot::Receiver<()>,
) -> io::Result<(String, ExitStatus)> {
    let (reader, writer) = io::pipe()?;
    let mut reader = pipe::Receiver::from_owned_fd(reader.into())?;
    let mut child = Command::new(shell)
        .arg("-c")
        .arg(command)
        .current_dir(cwd)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let mut group = ProcessGroup(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let (mut kept, mut buffer, mut is_stopped) = (HeadAndTail::default(), vec![0; 64 * 1024], false);
    let status = loop {
        tokio::select! {
            biased;
            _ = &mut stop, if !is_stopped => {
                is_stopped = true;
                drop(ProcessGroup(group.0));
            }
            read = reader.read(&mut buffer) => match read? {
                0 => break child.wait().await?,
                count => kept.push(&buffer[..count]),
            },
            // What it has left running may hold the pipe for ever.
            status = child.wait() => break status?,
        }
    };
    while let Ok(count @ 1..) = reader.try_read(&mut buffer) {
        kept.push(&buffer[..count]);
    }
    // What it has left running is the person's.
    group.0 = None;
    Ok((kept.text(), status))
}

/// The beginning and the end of an output.
#[derive(Default)]
struct HeadAndTail {
    first: Vec<u8>,
    last: Vec<u8>,
    left_out: usize,
}

impl HeadAndTail {
    fn push(&mut self, bytes: &[u8]) {
        let room = KEPT.saturating_sub(self.first.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.first.extend_from_slice(first);
        self.last.extend_from_slice(rest);
        let old = self.last.len().saturating_sub(KEPT);
        self.left_out += self.last.drain(..old).len();
    }

    fn text(&self) -> String {
        let first = String::from_utf8_lossy(&self.first);
        let last = String::from_utf8_lossy(&self.last);
        match self.left_out {
            0 => format!("{first}{last}"),
            bytes => format!("{first}\n[… {bytes} bytes left out …]\n{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ran(command: &str) -> (String, ExitStatus) {
        let (_keep, stop) = oneshot::channel();
        capture(Path::new("/bin/sh"), command, Path::new("/"), stop).await.unwrap()
    }

    #[tokio::test]
    async fn both_outputs_come_in_their_order_and_a_process_left_behind_is_not_waited_for() {
        let (output, status) = ran("echo one; echo two >&2; echo three; sleep 1000 & echo $!; exit 3").await;
        assert!(output.starts_with("one\ntwo\nthree\n"), "{output}");
        assert_eq!(status.code(), Some(3));
        let left: i32 = output.lines().last().unwrap().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn a_flood_is_cut_in_the_middle() {
        let (output, _) = ran("seq 1 400000").await;
        assert!(output.starts_with("1\n2\n") && output.trim_end().ends_with("400000"));
        assert!(output.contains("bytes left out") && output.len() < 2 * KEPT + 100);
    }

    #[tokio::test]
    async fn a_stop_ends_it_with_everything_that_it_started() {
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(async move {
            capture(Path::new("/bin/sh"), "sleep 1000 & echo $!; wait", Path::new("/"), stopped)
                .await
                .unwrap()
        });
        drop(stop);
        let (_, status) = running.await.unwrap();
        assert!(!status.success());
    }
}
