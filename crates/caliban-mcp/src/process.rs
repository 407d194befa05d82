//! A server's process and all that it started: in a process group of their own, ended together.
//!
//! What leaves the group is found through the parents as long as the server lives; a process that has left
//! both is its own affair.

use std::{collections::HashMap, process::ExitStatus, time::Duration};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, ChildStdin},
};

/// How long a server has to leave after its standard input is closed, and again after TERM.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Option<Pid>,
    /// Closed only once its descendants are known: a server that sees the end of its input leaves, and what it
    /// started can then not be found any more.
    stdin: Option<ChildStdin>,
}

impl Process {
    pub(crate) fn new(mut child: Child) -> Self {
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let stdin = child.stdin.take();
        Self { child, pid, stdin }
    }

    /// Writes all of it to the server.
    pub(crate) async fn write(&mut self, message: &[u8]) -> std::io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        stdin.write_all(message).await?;
        stdin.flush().await
    }

    /// Waits for its end.
    pub(crate) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends all of it. Tells how it ended when it did so by itself.
    pub(crate) async fn end(&mut self) -> Option<ExitStatus> {
        let others = self.descendants();
        self.stdin = None;
        let by_itself = tokio::time::timeout(GRACE, self.child.wait()).await;
        if by_itself.is_err() {
            self.signal(Signal::TERM);
            // Whoever does not listen is killed below.
            let _best_effort = tokio::time::timeout(GRACE, self.child.wait()).await;
        }
        self.kill(&others);
        let _best_effort = tokio::time::timeout(GRACE, self.child.wait()).await;
        by_itself.ok()?.ok()
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // Gone already is as good.
            let _best_effort = kill_process_group(pid, signal);
        }
    }

    fn kill(&self, others: &[Pid]) {
        self.signal(Signal::KILL);
        for &pid in others {
            let _best_effort = kill_process(pid, Signal::KILL);
        }
    }

    /// All below the server, as far as the system tells.
    fn descendants(&self) -> Vec<Pid> {
        let Some(root) = self.pid else { return Vec::new() };
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
            // The name in parentheses may hold anything; the parent is the second field behind it.
            let parent = stat
                .rsplit_once(')')
                .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<i32>().ok());
            if let Some(parent) = parent {
                children.entry(parent).or_default().push(pid);
            }
        }
        let mut found = Vec::new();
        let mut todo = vec![root.as_raw_nonzero().get()];
        while let Some(pid) = todo.pop() {
            for child in children.remove(&pid).into_iter().flatten() {
                found.extend(Pid::from_raw(child));
                todo.push(child);
            }
        }
        found
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Once it has been waited for, its number may belong to somebody else.
        if self.child.id().is_some() {
            let others = self.descendants();
            self.kill(&others);
        }
    }
}
