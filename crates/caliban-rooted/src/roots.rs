//! The roots of one agent: each is found by its path once, and known by its identity from then on.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::{below::Below, byte_text::ByteText, identity::Identity, root::Root};

/// Shared by all that judge and fence for one agent and its helpers. Cheap to clone.
#[derive(Clone, Default)]
pub struct Roots(Arc<Mutex<Vec<(PathBuf, KnownRoot)>>>);

/// What a path led to: a root, or one that an earlier process of the agent had and that is not there any more.
#[derive(Clone)]
enum KnownRoot {
    Root(Arc<Root>),
    Lost(PathBuf, Identity),
}

impl KnownRoot {
    fn path(&self) -> &Path {
        match self {
            Self::Root(root) => root.path(),
            Self::Lost(path, _) => path,
        }
    }
}

/// Why a root cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum RootsError {
    /// It is not there, or not where it was, or something else is in its place.
    Replaced(PathBuf),
    /// It cannot be looked at; the reason, in words.
    Unseen(PathBuf, String),
}

impl fmt::Display for RootsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replaced(path) => write!(
                f,
                "{} was moved or replaced since this agent began: nothing runs there (hint: put it back, or start a new session \
                 in it)",
                path.display()
            ),
            Self::Unseen(path, why) => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

/// What is written down of roots: for the next process of the same agent.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootsRecord {
    /// The boot of the machine in which the identities hold.
    boot: String,
    roots: Vec<(ByteText, ByteText, Identity)>,
}

impl RootsRecord {
    /// Whether its identities hold in this boot of the machine.
    pub fn is_of(&self, boot: &str) -> bool {
        self.boot == boot
    }
}

/// A place beneath a root as it was judged: there was this very thing, and no link on the way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct JudgedPlace {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub identity: Identity,
}

impl Roots {
    /// What a path leads to now, if that lies beneath one of the roots. Links are followed to find it; what is found has none.
    #[expect(clippy::disallowed_methods, reason = "what it leads to is looked up again, beneath a root")]
    pub fn judge(&self, path: &Path) -> Option<JudgedPlace> {
        let (root, name) = self.holding(&std::fs::canonicalize(path).ok()?)?;
        let identity = root.look(&name).ok()?.identity()?;
        Some(JudgedPlace { path: name.under(root.path()), identity })
    }

    /// The root that this path led to when it was first asked about.
    pub fn pin(&self, path: &Path) -> io::Result<Arc<Root>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.iter().find(|(given, _)| given == path) {
            Some((_, KnownRoot::Root(root))) => return Ok(root.clone()),
            Some((_, KnownRoot::Lost(path, _))) => {
                return Err(io::Error::other(RootsError::Replaced(path.clone()).to_string()));
            }
            None => {}
        }
        let root = Arc::new(Root::pin(path)?);
        known.push((path.to_owned(), KnownRoot::Root(root.clone())));
        Ok(root)
    }

    /// The same for a directory that a person named where an agent can make links: none of those that lie in one of these directories is
    /// followed.
    pub fn pin_through_links_outside(&self, path: &Path, writable: &[PathBuf]) -> io::Result<Arc<Root>> {
        let root = Arc::new(Root::pin_through_links_outside(path, writable)?);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|(given, _)| given == path) {
            known.push((path.to_owned(), KnownRoot::Root(root.clone())));
        }
        Ok(root)
    }

    /// The same; an error, in words, when it is not where it was.
    pub fn in_place(&self, path: &Path) -> Result<Arc<Root>, RootsError> {
        if let Some(KnownRoot::Lost(path, _)) = self.known(path) {
            return Err(RootsError::Replaced(path));
        }
        let unseen = |error: io::Error| RootsError::Unseen(path.to_owned(), error.to_string());
        let root = self.pin(path).map_err(unseen)?;
        if root.is_in_place().map_err(unseen)? {
            Ok(root)
        } else {
            Err(RootsError::Replaced(root.path().to_owned()))
        }
    }

    /// Whether this path was asked about.
    pub fn has(&self, path: &Path) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|(given, _)| given == path)
    }

    /// Where a directory was, without links, when it was first asked about; where it leads now when it cannot be pinned.
    pub fn real(&self, path: &Path) -> Option<PathBuf> {
        let _unless_it_is_known = self.pin(path);
        self.known(path).map(|known| known.path().to_owned())
    }

    fn known(&self, path: &Path) -> Option<KnownRoot> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(given, _)| given == path).map(|(_, known)| known.clone())
    }

    /// The innermost root that a path without links lies in, which has to be where it was. None when it lies in none.
    pub fn holding_in_place(&self, path: &Path) -> Result<Option<(Arc<Root>, Below)>, RootsError> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let within = known.into_iter().filter(|(_, known)| path.starts_with(known.path()));
        let Some((given, _)) = within.max_by_key(|(_, known)| known.path().components().count()) else {
            return Ok(None);
        };
        let root = self.in_place(&given)?;
        Ok(root.name_of(path).map(|name| (root, name)))
    }

    /// The innermost root that a path without links lies in.
    pub fn holding(&self, path: &Path) -> Option<(Arc<Root>, Below)> {
        let within = self.all().into_iter().filter_map(|root| Some((root.name_of(path)?, root)));
        within.max_by_key(|(_, root)| root.path().components().count()).map(|(name, root)| (root, name))
    }

    fn all(&self) -> Vec<Arc<Root>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let roots = known.iter().filter_map(|(_, known)| match known {
            KnownRoot::Root(root) => Some(root.clone()),
            KnownRoot::Lost(..) => None,
        });
        roots.collect()
    }

    /// Takes over what an earlier process of this agent wrote down. In the same boot a root has to be the same directory; in
    /// another one it has to be in the same place, without a link on the way. One that is not cannot be used.
    pub fn recall(&self, record: &RootsRecord, boot: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (given, path, identity) in &record.roots {
            let path = path.path();
            let found = if record.is_of(boot) {
                Root::exactly(path, *identity).ok().flatten()
            } else {
                Root::plain(path).ok()
            };
            let found = found.map_or_else(
                || KnownRoot::Lost(path.to_owned(), *identity),
                |root| KnownRoot::Root(Arc::new(root)),
            );
            known.retain(|(known, _)| known != given.path());
            known.push((given.path().to_owned(), found));
        }
    }

    /// What the next process of this agent has to know of these roots.
    pub fn record(&self, paths: &[&Path], boot: &str) -> RootsRecord {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = known.iter().filter(|(given, _)| paths.contains(&given.as_path()));
        let roots = wanted.map(|(given, known)| {
            let identity = match known {
                KnownRoot::Root(root) => root.identity(),
                KnownRoot::Lost(_, identity) => *identity,
            };
            (given.as_path().into(), known.path().into(), identity)
        });
        RootsRecord { boot: boot.to_owned(), roots: roots.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn a18_a_root_stays_what_it_was_when_it_was_pinned() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        let (project, home) = (top.join("apps/web"), top.join("home"));
        fs::create_dir_all(&project).unwrap();
        fs::create_dir(&home).unwrap();
        let roots = Roots::default();
        assert_eq!(roots.in_place(&project).unwrap().path(), project);
        let record = roots.record(&[&project], "boot");
        roots.pin(&top).unwrap();
        let (held, name) = roots.holding(&project.join("src")).unwrap();
        assert_eq!((held.path(), name), (project.as_path(), Below::new("src").unwrap()));
        let (held, name) = roots.holding_in_place(&project.join("src")).unwrap().unwrap();
        assert_eq!((held.path(), name), (project.as_path(), Below::new("src").unwrap()));
        // The parent is moved away, and a link to the home takes its place.
        fs::rename(top.join("apps"), top.join("x")).unwrap();
        fs::create_dir(top.join("apps")).unwrap();
        symlink("../home", &project).unwrap();
        assert_eq!(roots.in_place(&project).unwrap_err(), RootsError::Replaced(project.clone()));
        assert_eq!(roots.real(&project), Some(project.clone()));
        let next = |boot: &str| {
            let next = Roots::default();
            next.recall(&record, boot);
            next
        };
        for boot in ["boot", "another boot"] {
            let next = next(boot);
            assert_eq!(next.in_place(&project).unwrap_err(), RootsError::Replaced(project.clone()), "{boot}");
            assert!(next.pin(&project).is_err());
            assert_eq!(next.real(&project), Some(project.clone()));
            assert!(next.holding(&project.join("f")).is_none());
            let lost = next.holding_in_place(&project.join("f")).map(|_| ()).unwrap_err();
            assert_eq!(lost, RootsError::Replaced(project.clone()));
            assert!(next.holding_in_place(&home).unwrap().is_none());
            // It stays lost for those who come after.
            let after = Roots::default();
            after.recall(&next.record(&[&project], boot), boot);
            assert!(after.in_place(&project).is_err(), "{boot}");
        }
        // A new directory in its place is another one, until the machine has booted again.
        fs::remove_file(&project).unwrap();
        fs::create_dir(&project).unwrap();
        assert!(next("boot").in_place(&project).is_err());
        assert!(next("another boot").in_place(&project).is_ok());
    }
}
