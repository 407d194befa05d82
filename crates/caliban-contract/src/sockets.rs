//! Sockets in their places: bound whole, known again, and bound anew when they are gone.
//!
//! Runtime directories do not live as long as daemons and agents do: a logout takes `/run/user/<uid>` away, and tmp
//! cleaners take what is old. Where the directory cannot be made again there is a refuge below `/tmp`, found from the
//! path alone, so that whoever knows where a socket was knows where it went.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use crate::places::{PlacesError, private_dir, short_dir, short_parent};

/// A socket that is in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    path: PathBuf,
    /// Device and inode: another file of this name is not ours.
    identity: (u64, u64),
}

impl Bound {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is still there. Where that cannot be told, it is.
    pub fn is_there(&self) -> bool {
        match identity(&self.path) {
            Ok(found) => found == self.identity,
            Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        }
    }

    /// Takes it away, unless it is somebody else's by now.
    pub fn remove(&self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _gone_already = fs::remove_file(&self.path);
        }
    }
}

/// Listens at `path`: under another name first, then in place in one step, so that nobody ever finds a socket that does
/// not answer. Whatever is in place is replaced.
pub fn bind(path: &Path) -> io::Result<(UnixListener, Bound)> {
    let new = path.with_extension("new");
    // Left by one that was killed in between.
    let _stale = fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
    let identity = identity(&new)?;
    fs::rename(&new, path)?;
    Ok((listener, Bound { path: path.to_owned(), identity }))
}

/// Listens anew for an agent whose socket `<runtime>/<hash>/<id>.sock` is gone: there, or in the refuge.
pub fn bind_agent_again(path: &Path) -> Result<(UnixListener, Bound), String> {
    let mut why = Vec::new();
    for path in [Some(path.to_owned()), refuge(path)].into_iter().flatten() {
        match bind_private(&path) {
            Ok(bound) => return Ok(bound),
            Err(text) => why.push(format!("{}: {text}", path.display())),
        }
    }
    Err(why.join("; "))
}

/// Where an agent's socket is that was at `path`: there, or in the refuge.
pub fn reachable(path: &Path) -> PathBuf {
    if path.symlink_metadata().is_ok() {
        return path.to_owned();
    }
    match refuge(path).filter(|refuge| refuge.symlink_metadata().is_ok()) {
        Some(refuge) => refuge,
        None => path.to_owned(),
    }
}

/// The refuge of `<runtime>/<hash>/<id>.sock`.
fn refuge(path: &Path) -> Option<PathBuf> {
    let inner = path.parent()?;
    Some(short_dir(inner.parent()?).join(inner.file_name()?).join(path.file_name()?))
}

fn bind_private(path: &Path) -> Result<(UnixListener, Bound), String> {
    // Somebody else's by now: an agent has its name to itself, so it is left alone.
    if path
        .symlink_metadata()
        .is_ok_and(|found| !std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()))
    {
        return Err("something else is there".to_owned());
    }
    let inner = path.parent().unwrap_or(path);
    let runtime = inner.parent().unwrap_or(inner);
    let words = |error: PlacesError| error.to_string();
    if runtime.parent() == Some(&short_parent()) {
        private_dir(&short_parent()).map_err(words)?;
    }
    private_dir(runtime).map_err(words)?;
    private_dir(inner).map_err(words)?;
    bind(path).map_err(|error| error.to_string())
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_known_again_and_only_its_own_is_removed() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("s.sock");
        let (_listener, bound) = bind(&path).unwrap();
        assert!(bound.is_there());
        let (_other, second) = bind(&path).unwrap();
        assert!(!bound.is_there() && second.is_there());
        bound.remove();
        assert!(second.is_there());
        second.remove();
        assert!(!second.is_there() && !path.exists());
    }

    #[tokio::test]
    async fn an_agents_socket_comes_back_in_its_place_or_in_the_refuge() {
        let temp = tempfile::Builder::new().prefix("rf").tempdir_in("/tmp").unwrap();
        let path = temp.path().join("rt/0123456789abcdef/a3f8b2c1.sock");
        let (_listener, bound) = bind_agent_again(&path).unwrap();
        assert_eq!((bound.path(), reachable(&path)), (path.as_path(), path.clone()));
        // Nothing can be made where a file is.
        fs::remove_dir_all(temp.path().join("rt")).unwrap();
        fs::write(temp.path().join("rt"), "").unwrap();
        assert!(!bound.is_there());
        let (_listener, bound) = bind_agent_again(&path).unwrap();
        assert_ne!(bound.path(), path);
        assert_eq!(reachable(&path), bound.path());
        bound.remove();
        fs::remove_dir_all(bound.path().parent().unwrap().parent().unwrap()).unwrap();
        assert_eq!(reachable(&path), path);
    }
}
