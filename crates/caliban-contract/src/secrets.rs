//! Where the secrets of agents lie: beside their sockets, and in memory where that would be on a disk.
//!
//! A runtime directory is in memory and goes with the session. Where there is none, sockets are below the directory for
//! temporary files (f04), which is mostly on a disk: then the keys are in `/dev/shm`. Who names a directory with
//! `CALIBAN_DAEMON_RUNTIME_DIR` or `XDG_RUNTIME_DIR` has everything there.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use caliban_core::hex;
use sha2::{Digest as _, Sha256};

use crate::places::{TEMPORARY, private_dir, short_parent};

/// What Linux keeps in memory for all.
const MEMORY: &str = "/dev/shm";
/// What the system calls file systems in memory: tmpfs and ramfs.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
/// Bytes of a directory's hash.
const HASH_BYTES: usize = 8;

/// The secrets of the agent that listens at `socket`.
pub fn secrets_file(socket: &Path) -> PathBuf {
    let beside = socket.with_extension("env");
    let name = beside.file_name().unwrap_or_default().to_owned();
    let Some(memory) = socket.parent().and_then(memory_dir).map(|dir| dir.join(name)) else { return beside };
    // Written by a program that knew of no other place.
    if beside.exists() && !memory.exists() { beside } else { memory }
}

/// Where the secrets for the sockets in this directory are, when that is elsewhere.
pub fn memory_dir(sockets: &Path) -> Option<PathBuf> {
    let runtime = sockets.parent()?;
    let is_temporary =
        runtime.file_name() == Some(OsStr::new(TEMPORARY)) || runtime.parent() == Some(&short_parent());
    if !is_temporary || is_in_memory(sockets) || !is_in_memory(Path::new(MEMORY)) {
        return None;
    }
    let own = Path::new(MEMORY).join(format!("caliban-{}", rustix::process::getuid().as_raw()));
    // Everybody can write in there: one that is not ours alone is not used (a01).
    private_dir(&own).ok()?;
    let digest = Sha256::digest(sockets.as_os_str().as_bytes());
    Some(own.join(hex::encode(&digest[..HASH_BYTES])))
}

/// Looks at the nearest directory above that is there.
fn is_in_memory(path: &Path) -> bool {
    let found = path.ancestors().find_map(|dir| rustix::fs::statfs(dir).ok());
    found.is_some_and(|found| IN_MEMORY.contains(&found.f_type))
}
