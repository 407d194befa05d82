//! A small file system of its own, for tests that need a full disk.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::skip::{Lack, skip};

/// A mounted tmpfs, unmounted when this is dropped.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of this size, such as `4m`, at a directory, which is created. Skips the test if that is impossible.
    #[track_caller]
    pub fn mount(at: impl Into<PathBuf>, size: &str) -> Option<Self> {
        let at = at.into();
        std::fs::create_dir_all(&at).unwrap();
        let options = ["-t", "tmpfs", "-o", &format!("size={size},mode=700"), "none"];
        let done = Command::new("mount").args(options).arg(&at).output();
        if done.is_ok_and(|done| done.status.success()) {
            return Some(Self(at));
        }
        skip(Lack::Mounts);
        None
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Fills the disk; removing the returned file frees the space again.
    pub fn fill(&self) -> PathBuf {
        let filler = self.filler();
        let to = format!("of={}", filler.display());
        // dd ends with "no space left on device".
        let _full = Command::new("dd").args(["if=/dev/zero", to.as_str()]).output();
        filler
    }

    /// The file that fills the disk.
    pub fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Removes the filler.
    pub fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _busy = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
