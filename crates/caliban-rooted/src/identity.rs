//! Which file or directory something is, whatever it is called.

use std::{fs::Metadata, io, os::fd::AsFd, os::unix::fs::MetadataExt};

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

/// Device and inode. A rename keeps them; another file in the same place has others. They hold for one boot of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Of an open descriptor.
    pub fn of(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self::from(&rustix::fs::fstat(fd)?))
    }
}

impl From<&Stat> for Identity {
    fn from(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

impl From<&Metadata> for Identity {
    fn from(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}
