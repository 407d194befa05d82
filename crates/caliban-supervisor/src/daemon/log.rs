//! `daemon.log`: what the daemon did and why, within a cap; the one before it is `daemon.log.1`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Mutex;

/// The size at which a log is put aside.
const CAP: u64 = 2 * 1024 * 1024;

/// Sends what the daemon says to this file from now on.
pub(crate) fn install(path: PathBuf) {
    let log = Mutex::new(CappedLog::new(path, CAP));
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log)
        .with_ansi(false)
        .with_target(false)
        // On a full disk it would say so on our standard error, which is the same file, and a print that fails ends us.
        .log_internal_errors(false)
        .with_max_level(tracing::Level::INFO)
        .finish();
    // Fails when there is one already, as in a test that runs the daemon inside itself.
    let _have_one = tracing::subscriber::set_global_default(subscriber);
}

/// A log that is put aside as `….log.1` when it has reached its cap.
pub(crate) struct CappedLog {
    path: PathBuf,
    cap: u64,
    file: Option<File>,
    size: u64,
}

impl CappedLog {
    pub(crate) fn new(path: PathBuf, cap: u64) -> Self {
        Self { path, cap, file: None, size: 0 }
    }

    pub(crate) fn open(&mut self) -> io::Result<&mut File> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => {
                let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
                self.size = file.metadata()?.len();
                Ok(none.insert(file))
            }
        }
    }
}

impl Write for CappedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.size > self.cap {
            let _stays = std::fs::rename(&self.path, self.path.with_extension("log.1"));
            self.file = None;
        }
        let written = self.open()?.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
