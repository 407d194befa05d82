//! Doorbells: a reader that waits for a message sleeps until the writer rings after its commit.
//!
//! Each waiting reader has a FIFO of its own in a private directory beside the database, below the name of the agent it
//! waits for (ADR 0020). Ringing is best effort and costs one failed `open` if no reader waits. The FIFO of a killed
//! reader is removed by the next ring.
//!
//! Refuses: carrying data, or being relied on. The store is the truth; a waiter also polls it every [`SLOW_CHECK`].

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags};
use tokio::net::unix::pipe;

/// The interval at which a waiter polls the store without a ring.
pub const SLOW_CHECK: Duration = Duration::from_secs(1);

/// How many times a waiter makes its directory again if other processes remove it.
const ATTEMPTS: u32 = 10;

/// The doorbells of one store.
#[derive(Debug, Clone)]
pub struct Bells {
    dir: PathBuf,
}

impl Bells {
    /// The doorbells in this directory, which the first waiter makes.
    #[must_use]
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Starts to listen for `who`. Rings from now on are kept until [`Bell::rung`] sees them.
    ///
    /// # Errors
    /// When the FIFO cannot be made, or the directory belongs to another user.
    pub fn listen(&self, who: &str) -> io::Result<Bell> {
        let room = self.dir.join(who);
        let hang = || {
            private_dir(&self.dir)?;
            private_dir(&room)?;
            Bell::hang(&room)
        };
        // Another waiter may just have removed the empty directory on leaving.
        let is_gone = |hung: &io::Result<Bell>| {
            hung.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        (0..ATTEMPTS).map(|_| hang()).find(|hung| !is_gone(hung)).unwrap_or_else(hang)
    }

    /// Rings for `who`. Best effort: the slow check makes up for a lost ring.
    pub fn ring(&self, who: &str) {
        let Ok(entries) = fs::read_dir(self.dir.join(who)) else { return };
        for entry in entries.flatten() {
            if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                ring_one(&entry.path());
            }
        }
    }
}

/// One waiting reader's FIFO; removed when dropped.
#[derive(Debug)]
pub struct Bell {
    path: PathBuf,
    ear: pipe::Receiver,
    /// Held open so that the FIFO never reports the end of its input.
    _own: pipe::Sender,
}

impl Bell {
    fn hang(room: &Path) -> io::Result<Self> {
        let name = format!("{}-{:08x}", std::process::id(), fastrand::u32(..));
        // Made under a hidden name: a FIFO that has no reader yet would look like that of a dead reader.
        let hidden = room.join(format!(".{name}"));
        rustix::fs::mknodat(CWD, &hidden, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
        let path = room.join(&name);
        let opened = pipe::OpenOptions::new()
            .open_receiver(&hidden)
            .and_then(|ear| Ok((ear, pipe::OpenOptions::new().open_sender(&hidden)?)))
            .and_then(|pair| fs::rename(&hidden, &path).map(|()| pair));
        match opened {
            Ok((ear, own)) => Ok(Self { path, ear, _own: own }),
            Err(error) => {
                let _ = fs::remove_file(&hidden);
                Err(error)
            }
        }
    }

    /// Waits until there has been a ring since the last call.
    ///
    /// # Errors
    /// When the FIFO fails.
    pub async fn rung(&mut self) -> io::Result<()> {
        loop {
            self.ear.readable().await?;
            let mut buffer = [0_u8; 256];
            match self.ear.try_read(&mut buffer) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // Best effort: the next ring removes what stays.
        let _ = fs::remove_file(&self.path);
        if let Some(room) = self.path.parent() {
            let _ = fs::remove_dir(room);
        }
    }
}

fn ring_one(path: &Path) {
    let flags = [OFlags::WRONLY, OFlags::NONBLOCK, OFlags::CLOEXEC, OFlags::NOFOLLOW].into_iter().collect();
    match rustix::fs::open(path, flags, Mode::empty()) {
        // A full FIFO: enough rings are pending.
        Ok(fifo) => drop(rustix::io::write(&fifo, b"!")),
        Err(rustix::io::Errno::NXIO) => drop(fs::remove_file(path)),
        Err(_) => {}
    }
}

/// Makes a directory that only this user can enter; refuses one that another user could have prepared.
pub(crate) fn private_dir(dir: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = fs::symlink_metadata(dir)?;
    let ours =
        found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
    if ours { Ok(()) } else { Err(io::Error::other("the directory is not ours alone")) }
}

#[cfg(test)]
mod tests {
    use super::Bells;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    #[tokio::test]
    async fn every_waiter_hears_a_ring_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().expect("temp dir");
        let bells = Bells::at(dir.path().join("bells"));
        bells.ring("a");
        let (mut one, mut two) = (bells.listen("a").expect("one"), bells.listen("a").expect("two"));
        bells.ring("b");
        bells.ring("a");
        one.rung().await.expect("one hears");
        two.rung().await.expect("two hears");
        // Each ring is seen once.
        let again = tokio::time::timeout(Duration::from_millis(50), one.rung()).await;
        assert!(again.is_err(), "nobody rang: {again:?}");
        let mode = fs::metadata(&one.path).expect("fifo").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop((one, two));
        assert_eq!(fs::read_dir(dir.path().join("bells")).expect("dir").count(), 0);
    }

    #[test]
    fn a_directory_that_others_could_have_prepared_is_refused() {
        let dir = tempfile::tempdir().expect("temp dir");
        let at = |name: &str| dir.path().join(name);
        for (name, mode, ok) in [("own", 0o700, true), ("group", 0o720, false), ("all", 0o702, false)] {
            fs::create_dir(at(name)).expect("dir");
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).expect("mode");
            assert_eq!(super::private_dir(&at(name)).is_ok(), ok, "{name}");
        }
        fs::write(at("file"), "").expect("file");
        std::os::unix::fs::symlink("own", at("link")).expect("link");
        for name in ["file", "link", "none/below"] {
            assert!(super::private_dir(&at(name)).is_err(), "{name}");
        }
    }

    #[tokio::test]
    async fn a_ring_removes_the_fifo_of_a_dead_waiter() {
        let dir = tempfile::tempdir().expect("temp dir");
        let bells = Bells::at(dir.path().join("bells"));
        let bell = bells.listen("a").expect("listen");
        let dead = bell.path.with_file_name("dead");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &dead,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .expect("fifo");
        bells.ring("a");
        assert!(!dead.exists());
        assert!(bell.path.exists());
    }
}
