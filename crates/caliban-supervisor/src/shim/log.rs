//! What the worker prints, kept within a cap: `worker.log`, and the one before it as `worker.log.1`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Receiver;

use crate::records::WORKER_LOG;

/// The size at which a log is put aside.
const CAP: u64 = 1024 * 1024;
/// How much is copied at once.
const CHUNK: usize = 8 * 1024;

pub(super) struct WorkerLog {
    path: PathBuf,
    /// None when the disk does not take it; what is printed is then lost, the worker goes on.
    file: Option<File>,
    size: u64,
    pipe: Option<Receiver>,
}

impl WorkerLog {
    /// The log of the agent, and the end of the pipe for the worker.
    pub(super) fn open(dir: &Path) -> io::Result<(Self, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        let path = dir.join(WORKER_LOG);
        let file = append(&path).ok();
        let size = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |found| found.len());
        Ok((Self { path, file, size, pipe: Some(Receiver::from_owned_fd(read)?) }, write))
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

    /// Copies what is there.
    pub(super) fn drain(&mut self) {
        let mut chunk = [0; CHUNK];
        while let Some(pipe) = &self.pipe {
            match pipe.try_read(&mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(n) => self.put(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.size > CAP {
            let aside = self.path.with_extension("log.1");
            let _stays = std::fs::rename(&self.path, aside);
            self.file = None;
        }
        if self.file.is_none() {
            self.file = append(&self.path).ok();
            self.size = 0;
        }
        if let Some(file) = &mut self.file {
            self.size += bytes.len() as u64;
            let _disk_full = file.write_all(bytes);
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}
