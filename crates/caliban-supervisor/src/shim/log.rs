//! What the worker prints, kept within a cap: `worker.log`, and the one before it as `worker.log.1`.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Receiver;

use crate::daemon::log::CappedLog;
use crate::records::WORKER_LOG;

/// The size at which a log is put aside.
const CAP: u64 = 1024 * 1024;
const CHUNK: usize = 8 * 1024;

pub(super) struct WorkerLog {
    log: CappedLog,
    pipe: Option<Receiver>,
}

impl WorkerLog {
    /// The log of the agent, and the end of the pipe for the worker.
    pub(super) fn open(dir: &Path) -> io::Result<(Self, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        let mut log = CappedLog::new(dir.join(WORKER_LOG), CAP);
        let _tried_again_at_the_first_output = log.open();
        Ok((Self { log, pipe: Some(Receiver::from_owned_fd(read)?) }, write))
    }

    /// Copies what is there, after waiting for something; waits for ever once the pipe is closed.
    pub(super) async fn copy_some(&mut self) {
        let readable = match &self.pipe {
            Some(pipe) => pipe.readable().await,
            None => std::future::pending().await,
        };
        if readable.is_err() {
            self.pipe = None;
        }
        self.drain();
    }

    pub(super) fn drain(&mut self) {
        let mut chunk = [0; CHUNK];
        while let Some(pipe) = &self.pipe {
            match pipe.try_read(&mut chunk) {
                Ok(0) => self.pipe = None,
                // What the disk does not take is lost; the worker goes on.
                Ok(n) => drop(self.log.write_all(&chunk[..n])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }
}
