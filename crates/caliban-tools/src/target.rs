//! From the path that a model names to the file that is touched.
//!
//! Owns link resolution and the promise that the file that was judged is the file that is opened: the
//! path is noted when the permission rules ask, compared when the call runs, and opened without following
//! any link, so a directory that is swapped for a link in between changes nothing (a07).

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::{self, File},
    io::{self, ErrorKind},
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::fs::{CWD, Mode, OFlags};

use crate::error_text;

/// Links that one path may go through.
const LINKS: usize = 40;
/// Judged calls remembered at one time.
const JUDGED: usize = 1_024;

/// What calls meant when the permission rules were asked, by what the model wrote. The call that follows
/// takes it out: it goes to the path that was judged, wherever the working directory is by then.
#[derive(Debug, Default)]
pub(crate) struct Judged(Mutex<Judgements>);

#[derive(Debug, Default)]
struct Judgements {
    by_words: HashMap<String, Judgement>,
    noted: u64,
}

#[derive(Debug)]
struct Judgement {
    target: CallTarget,
    /// Calls of the same words that were judged and have not come yet.
    calls: usize,
    /// Its place in the order of judgements.
    number: u64,
}

/// Where a call goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallTarget {
    /// Absolute, links not resolved.
    pub(crate) path: PathBuf,
    /// What the path led to when it was judged.
    judged: Option<PathBuf>,
}

impl Judged {
    /// Notes what `words` mean now and where that leads.
    pub(crate) fn note(&self, words: &str, path: &Path) {
        let target = CallTarget { path: path.to_owned(), judged: real(path).ok() };
        let mut judged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        judged.noted += 1;
        let number = judged.noted;
        let calls = judged.by_words.get(words).map_or(0, |judgement| judgement.calls) + 1;
        judged.by_words.insert(words.to_owned(), Judgement { target, calls, number });
        if judged.by_words.len() > JUDGED {
            let oldest = judged.by_words.iter().min_by_key(|(_, judgement)| judgement.number);
            if let Some(words) = oldest.map(|(words, _)| words.clone()) {
                judged.by_words.remove(&words);
            }
        }
    }

    /// What was judged for these words; what they mean now when nothing was.
    pub(crate) fn claim(
        &self,
        words: &str,
        now: impl FnOnce() -> Result<PathBuf, String>,
    ) -> Result<CallTarget, String> {
        let mut judged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(judgement) = judged.by_words.get_mut(words) else {
            drop(judged);
            return Ok(CallTarget { path: now()?, judged: None });
        };
        judgement.calls -= 1;
        let target = judgement.target.clone();
        if judgement.calls == 0 {
            judged.by_words.remove(words);
        }
        Ok(target)
    }
}

impl CallTarget {
    /// The path with links resolved; refused when it is not what was judged.
    pub(crate) fn real(&self, shown: &str) -> Result<PathBuf, String> {
        let now = real(&self.path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => error_text::missing(shown, &self.path),
            _ => format!("{shown}: {}", error_text::reason(&error)),
        })?;
        match &self.judged {
            Some(judged) if *judged != now => Err(format!(
                "{shown} led to {} when the call was judged and leads to {} now; nothing was touched",
                judged.display(),
                now.display()
            )),
            Some(_) | None => Ok(now),
        }
    }
}

/// The absolute path that a model means. `~` is not expanded, and refused so that no directory of that
/// name comes into being.
pub(crate) fn absolute(cwd: &Path, given: &str) -> Result<PathBuf, String> {
    if given.is_empty() {
        return Err("the path is empty".into());
    }
    if given.contains('\0') {
        return Err("a path cannot contain a NUL character".into());
    }
    if given == "~" || given.starts_with("~/") {
        return Err(format!("{given}: `~` is not expanded here; give the absolute path"));
    }
    // `components` drops `.` and doubled slashes; `..` stays, as only the file system knows where it leads.
    Ok(cwd.join(given).components().collect())
}

/// The path with every link resolved. The last parts may not exist yet; a dangling link leads to where
/// it points.
pub(crate) fn real(path: &Path) -> io::Result<PathBuf> {
    real_within(path, LINKS)
}

fn real_within(path: &Path, links: usize) -> io::Result<PathBuf> {
    let error = match fs::canonicalize(path) {
        Ok(real) => return Ok(real),
        Err(error) if error.kind() == ErrorKind::NotFound => error,
        Err(error) => return Err(error),
    };
    let parent = path.parent().ok_or(error)?;
    if let Ok(target) = fs::read_link(path) {
        let links = links.checked_sub(1).ok_or_else(too_many_links)?;
        return real_within(&parent.join(target), links);
    }
    match path.components().next_back() {
        Some(Component::Normal(name)) => Ok(real_within(parent, links)?.join(name)),
        _ => Err(ErrorKind::NotFound.into()),
    }
}

fn too_many_links() -> io::Error {
    io::Error::other("too many links")
}

/// Opens a real path for reading without following a link anywhere in it and without waiting for the
/// other end of a pipe.
pub(crate) fn open(real: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(File::from(open_plain(real, flags)?))
}

/// Opens the directory at a real path, making it and its missing parents, without following a link.
pub(crate) fn open_dir_made(real: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut there = real;
    let mut dir = loop {
        match open_plain(there, flags) {
            Ok(dir) => break dir,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let (Some(parent), Some(name)) = (there.parent(), there.file_name()) else {
                    return Err(error);
                };
                missing.push(name);
                there = parent;
            }
            Err(error) => return Err(error),
        }
    };
    while let Some(name) = missing.pop() {
        match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        dir = rustix::fs::openat(&dir, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(dir)
}

#[cfg(target_os = "linux")]
fn open_plain(real: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    use rustix::{fs::ResolveFlags, io::Errno};
    match rustix::fs::openat2(CWD, real, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(fd) => Ok(fd),
        // A kernel or a container filter without openat2.
        Err(Errno::NOSYS | Errno::PERM) => open_by_parts(real, flags),
        Err(Errno::LOOP) => Err(io::Error::other("a part of the path was replaced by a link just now")),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn open_plain(real: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    open_by_parts(real, flags)
}

/// The same with one call for each part of the path.
fn open_by_parts(real: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut at = rustix::fs::openat(CWD, "/", directory, Mode::empty())?;
    let mut parts = real.components().filter(|part| *part != Component::RootDir).peekable();
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_some() { directory } else { flags | OFlags::NOFOLLOW };
        at = rustix::fs::openat(&at, part.as_os_str(), flags, Mode::empty())?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn dir() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(dir.path()).unwrap();
        (dir, real)
    }

    #[test]
    fn paths_are_taken_relative_to_the_working_directory() {
        let cwd = Path::new("/w");
        assert_eq!(absolute(cwd, "a/./b//c"), Ok("/w/a/b/c".into()));
        assert_eq!(absolute(cwd, "../x"), Ok("/w/../x".into()));
        assert_eq!(absolute(cwd, "/etc/hosts"), Ok("/etc/hosts".into()));
        assert_eq!(absolute(cwd, "~/x"), Err("~/x: `~` is not expanded here; give the absolute path".into()));
        assert_eq!(absolute(cwd, ""), Err("the path is empty".into()));
        assert_eq!(absolute(cwd, "a\0b"), Err("a path cannot contain a NUL character".into()));
    }

    #[test]
    fn links_missing_parts_and_dangling_links_are_resolved() {
        let (_keep, root) = dir();
        fs::create_dir(root.join("d")).unwrap();
        symlink("d", root.join("l")).unwrap();
        symlink("d/none", root.join("dangling")).unwrap();
        assert_eq!(real(&root.join("l/new/f")).unwrap(), root.join("d/new/f"));
        assert_eq!(real(&root.join("dangling")).unwrap(), root.join("d/none"));
        assert_eq!(real(&root.join("l/../x")).unwrap(), root.join("x"));
        symlink("loop", root.join("loop")).unwrap();
        assert!(real(&root.join("loop")).is_err());
        assert_eq!(real(&root.join("nope/../x")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a07_a_directory_swapped_for_a_link_after_the_judgement_is_refused() {
        let (_keep, root) = dir();
        fs::create_dir(root.join("src")).unwrap();
        fs::create_dir(root.join("outside")).unwrap();
        let path = root.join("src/f");
        let judged = Judged::default();
        let never = || Err("not judged".to_owned());
        judged.note("src/f", &path);
        let target = judged.claim("src/f", never).unwrap();
        assert_eq!(target.real("src/f"), Ok(path.clone()));
        fs::remove_dir(root.join("src")).unwrap();
        symlink("outside", root.join("src")).unwrap();
        assert_eq!(
            target.real("src/f"),
            Err(format!(
                "src/f led to {} when the call was judged and leads to {} now; nothing was touched",
                path.display(),
                root.join("outside/f").display()
            ))
        );
    }

    #[test]
    fn a_call_goes_where_it_was_judged_to_go() {
        let judged = Judged::default();
        let now = || Ok(PathBuf::from("/now/f"));
        let path = |target: Result<CallTarget, String>| target.unwrap().path;
        judged.note("f", Path::new("/then/f"));
        judged.note("f", Path::new("/then/f"));
        assert_eq!(path(judged.claim("f", now)), Path::new("/then/f"));
        assert_eq!(path(judged.claim("f", now)), Path::new("/then/f"));
        assert_eq!(path(judged.claim("f", now)), Path::new("/now/f"));
        for n in 0..3 * JUDGED {
            judged.note(&n.to_string(), Path::new("/x"));
        }
        assert_eq!(judged.0.lock().unwrap().by_words.len(), JUDGED);
        assert_eq!(path(judged.claim(&(3 * JUDGED - 1).to_string(), now)), Path::new("/x"));
        assert_eq!(path(judged.claim("0", now)), Path::new("/now/f"));
    }

    #[test]
    fn a07_a_link_in_a_real_path_is_not_followed() {
        let (_keep, root) = dir();
        fs::create_dir(root.join("outside")).unwrap();
        fs::write(root.join("outside/f"), "secret").unwrap();
        symlink("outside", root.join("src")).unwrap();
        assert!(open(&root.join("src/f")).is_err());
        assert!(open_dir_made(&root.join("src")).is_err());
        assert!(open_dir_made(&root.join("src/new")).is_err());
        assert!(open(&root.join("outside/f")).is_ok());
        assert!(!root.join("outside/new").exists());
        // Nor where the kernel cannot refuse links by itself.
        let read = OFlags::RDONLY | OFlags::CLOEXEC;
        assert!(open_by_parts(&root.join("src/f"), read).is_err());
        assert!(open_by_parts(&root.join("src"), read).is_err());
        assert!(open_by_parts(&root.join("outside/f"), read).is_ok());
    }

    #[test]
    fn missing_directories_are_made() {
        let (_keep, root) = dir();
        open_dir_made(&root.join("a/b/c")).unwrap();
        assert!(root.join("a/b/c").is_dir());
        fs::write(root.join("file"), "").unwrap();
        assert_eq!(open_dir_made(&root.join("file/b")).unwrap_err().kind(), ErrorKind::NotADirectory);
    }
}
