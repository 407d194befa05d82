//! From the path that a model names to the file that is touched.
//!
//! Owns link resolution and the promise that the file that was judged is the file that is opened: the
//! path is noted when the permission rules ask, compared when the call runs, and opened without following
//! any link (`caliban_rooted::real_path`), so a directory that is swapped for a link in between changes nothing (a07).

use std::{
    collections::HashMap,
    fs,
    io::{self, ErrorKind},
    path::{Component, Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use caliban_rooted::{Identity, Root};

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
    /// Which file or directory the path was then, if no link led to it.
    pub(crate) identity: Option<Identity>,
}

impl Judged {
    /// Notes what `words` mean now and where that leads.
    pub(crate) fn note(&self, words: &str, path: &Path) {
        let identity = Root::plain(path).ok().map(|found| found.identity());
        let target = CallTarget { path: path.to_owned(), judged: real(path).ok(), identity };
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

    /// What was judged for these words; it can still be claimed.
    pub(crate) fn see(&self, words: &str) -> Option<CallTarget> {
        let judged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        judged.by_words.get(words).map(|judgement| judgement.target.clone())
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
            let path = now()?;
            let identity = Root::plain(&path).ok().map(|found| found.identity());
            return Ok(CallTarget { path, judged: None, identity });
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

#[expect(clippy::disallowed_methods, reason = "links are resolved before the path is judged")]
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
}
