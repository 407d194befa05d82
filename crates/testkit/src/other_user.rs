//! Tests about what a user may not do: root may do everything.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

/// Whether this test has now been run by somebody else: as root it starts itself once more under another user. `test` is its whole name.
pub fn was_run_by_another_user(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // The directory of builds may be closed to others.
    let program = dir.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let done = Command::new("setpriv")
        .args(["--reuid", "4242", "--regid", "4242", "--clear-groups"])
        .arg(&program)
        .args(["--exact", test])
        .env("TMPDIR", dir.path())
        .env("HOME", dir.path())
        .current_dir("/")
        .output()
        .unwrap();
    assert!(done.status.success() && String::from_utf8_lossy(&done.stdout).contains("1 passed"), "{done:?}");
    true
}

/// Programs that were built, where other users can start them, too: the directory of builds may be closed to others. `setpriv` can start
/// them there, but they cannot start each other.
#[derive(Debug)]
pub struct OpenPrograms(tempfile::TempDir);

impl OpenPrograms {
    /// These programs.
    pub fn new<'a>(programs: impl IntoIterator<Item = &'a Path>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for program in programs {
            let open = dir.path().join(program.file_name().unwrap());
            if fs::hard_link(program, &open).is_err() {
                fs::copy(program, &open).unwrap();
            }
        }
        Self(dir)
    }

    /// One of them.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
