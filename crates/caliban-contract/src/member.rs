//! What a member of a broker team has on the disk beside the broker's database: `members/<id>` for as long as the member is
//! registered and works in a worktree, and `members/<pid>.sock`, on which the screen of a caliban member (the first process of
//! its pane) says what it is at.

use std::path::{Path, PathBuf};

use caliban_core::mode::Mode;

use crate::places::{SOCKET_PATH_LIMIT, short_dir};

/// What a member may do unasked: `cafleet` starts our own in this mode, and other programs in one that is no wider. Whatever is started
/// below a member gets at most this.
pub const MODE: Mode = Mode::AcceptEdits;

/// The directory, beside the database.
const DIRECTORY: &str = "members";
/// What the name of a socket ends with.
const SOCKET: &str = ".sock";

/// The directory of what members have.
#[must_use]
pub fn directory(database_dir: &Path) -> PathBuf {
    database_dir.join(DIRECTORY)
}

/// The file that holds a member's worktree: while it is there, no sweep takes the worktree.
#[must_use]
pub fn holder(database_dir: &Path, id: &str) -> PathBuf {
    directory(database_dir).join(id)
}

/// The socket of the caliban member whose screen is the process `pid`; below `/tmp` where the database's path is too long.
#[must_use]
pub fn socket(database_dir: &Path, pid: i64) -> PathBuf {
    let name = format!("{pid}{SOCKET}");
    let path = directory(database_dir).join(&name);
    if path.as_os_str().len() < SOCKET_PATH_LIMIT { path } else { short_dir(database_dir).join(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_lies_beside_the_database_unless_its_path_would_be_too_long() {
        let id = 4711;
        let near = socket(Path::new("/home/u/.local/share/cafleet"), id);
        assert_eq!(near, Path::new("/home/u/.local/share/cafleet/members/4711.sock"));
        let deep = PathBuf::from(format!("/{}", "d".repeat(100)));
        let far = socket(&deep, id);
        assert!(far.starts_with("/tmp") && far.as_os_str().len() < SOCKET_PATH_LIMIT, "{}", far.display());
        assert_eq!(far, socket(&deep, id));
        assert_ne!(far, socket(Path::new("/x"), id));
    }
}
