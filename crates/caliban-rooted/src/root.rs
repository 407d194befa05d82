//! One directory that is held open, and look-ups beneath it.

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat},
    io::Errno,
};

use crate::{below::Below, identity::Identity, tree};

/// No step leads out of the root or through a link.
const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// The same for an absolute path.
pub(crate) const PLAIN: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);
/// The thing itself, be it a link, without reading it.
const ITSELF: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A directory to go on from and to work in: nobody has to be allowed to list it.
const PASSED: OFlags = ITSELF.union(OFlags::DIRECTORY);

/// Opens an absolute path without following a link anywhere in it.
pub fn open_plain(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    rustix::fs::openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), PLAIN).map_err(in_words)
}

/// Opens this very file or directory, if that is what an absolute path without links leads to. None when it is another one.
pub fn open_exactly(path: &Path, identity: Identity) -> io::Result<Option<OwnedFd>> {
    match open_plain(path, ITSELF) {
        Ok(fd) => Ok((Identity::of(&fd)? == identity).then_some(fd)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a look-up says that there is no such thing any more, or a link in its place.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// A container's filter may not know the call; then nothing beneath a root can be found safely.
fn in_words(error: Errno) -> io::Error {
    match error {
        Errno::NOSYS | Errno::PERM => io::Error::other(
            "this machine does not allow the system call openat2, which finds files without following links",
        ),
        other => other.into(),
    }
}

/// What a name beneath a root is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundEntry {
    /// Nothing, or something that no name can be beneath.
    Nothing,
    /// A part of the name is a link: which one, and where it says that it leads.
    Link {
        /// The part, from the root.
        at: Below,
        /// What the link says.
        to: OsString,
    },
    /// A directory.
    Directory(Identity),
    /// A file; with more than one name when `links` is above 1.
    File {
        /// Which one.
        identity: Identity,
        /// How many names it has.
        links: u64,
    },
    /// A pipe, socket or device.
    Special(Identity),
}

impl FoundEntry {
    /// What an open descriptor is.
    pub fn of(fd: impl AsFd) -> io::Result<Self> {
        let stat: Stat = rustix::fs::fstat(&fd)?;
        let identity = Identity::from(&stat);
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Self::Directory(identity),
            #[cfg_attr(
                target_arch = "x86_64",
                expect(clippy::useless_conversion, reason = "u32 on other machines")
            )]
            FileType::RegularFile => Self::File { identity, links: u64::from(stat.st_nlink) },
            FileType::Symlink => {
                let to = rustix::fs::readlinkat(&fd, "", Vec::new())?;
                Self::Link { at: Below::here(), to: OsString::from_vec(to.into_bytes()) }
            }
            _ => Self::Special(identity),
        })
    }

    /// Which file or directory it is; none for a link and for nothing.
    pub fn identity(&self) -> Option<Identity> {
        match self {
            Self::Nothing | Self::Link { .. } => None,
            Self::Directory(identity) | Self::File { identity, .. } | Self::Special(identity) => {
                Some(*identity)
            }
        }
    }
}

/// A directory (or, for a tool's file, a file) that is held open.
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    identity: Identity,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.path.display(), self.identity)
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Root {
    /// What a path leads to now, through whatever links. From here on it is known by its identity.
    #[expect(clippy::disallowed_methods, reason = "links count until the root is pinned")]
    pub fn pin(path: &Path) -> io::Result<Self> {
        Self::plain(&std::fs::canonicalize(path)?)
    }

    /// What a path leads to through links of which none lies in one of these directories, where an agent can make links. None
    /// where one does, where it is in one of them itself, where there is nothing, and where it is neither a directory nor a file.
    pub fn pin_outside(path: &Path, writable: &[PathBuf]) -> Option<Self> {
        let is_inside = |path: &Path| writable.iter().any(|top| path.starts_with(top));
        if is_inside(path) {
            return None;
        }
        let root =
            Self::by_links(path, |link| !is_inside(link)).ok().filter(|root| !is_inside(root.path()))?;
        matches!(FoundEntry::of(&root), Ok(FoundEntry::Directory(_) | FoundEntry::File { .. }))
            .then_some(root)
    }

    /// What a path leads to, which may be in one of these directories, where an agent can make links; a link that lies in one of
    /// them is an error.
    pub fn pin_through_links_outside(path: &Path, writable: &[PathBuf]) -> io::Result<Self> {
        let is_agents = |link: &Path| {
            link.parent().is_some_and(|parent| writable.iter().any(|top| parent.starts_with(top)))
        };
        Self::by_links(path, |link| !is_agents(link))
    }

    /// Follows one link after the other. `may_follow` gets each, by a path without links and without `..`.
    fn by_links(path: &Path, may_follow: impl Fn(&Path) -> bool) -> io::Result<Self> {
        /// As many as the kernel follows.
        const LINKS: usize = 40;
        let real = |path: &Path| -> io::Result<Self> {
            let found = Self::plain(path)?;
            let real = path_of(&found.fd).ok_or(io::ErrorKind::NotFound)?;
            Self::exactly(&real, found.identity)?.ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        let mut path = path.to_owned();
        for _ in 0..LINKS {
            match real(&path) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
                    let (link, followed) = first_link_followed(&path).ok_or(error)?;
                    let (Some(parent), Some(name)) = (link.parent(), link.file_name()) else { break };
                    let link = real(parent)?.path.join(name);
                    if !may_follow(&link) {
                        let words = format!("{} is a link that an agent could have made", link.display());
                        return Err(io::Error::other(words));
                    }
                    path = followed;
                }
                found => return found,
            }
        }
        Err(Errno::LOOP.into())
    }

    /// The same for a path without links; a link in it is an error.
    pub fn plain(path: &Path) -> io::Result<Self> {
        let fd = open_plain(path, ITSELF)?;
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Err(Errno::LOOP.into());
        }
        Ok(Self { identity: Identity::from(&stat), fd, path: path.to_owned() })
    }

    /// This very directory, if it is still where it was.
    pub fn exactly(path: &Path, identity: Identity) -> io::Result<Option<Self>> {
        let found = open_exactly(path, identity)?;
        Ok(found.map(|fd| Self { fd, path: path.to_owned(), identity }))
    }

    /// Where it was when it was pinned, without links. For words and for lists of what to mount, where it is compared again.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which directory it is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether its path still leads to it, without a link.
    pub fn is_in_place(&self) -> io::Result<bool> {
        Ok(open_exactly(&self.path, self.identity)?.is_some())
    }

    /// The name of a path that is below this root's, as far as the words go.
    pub fn name_of(&self, path: &Path) -> Option<Below> {
        Below::new(path.strip_prefix(&self.path).ok()?).ok()
    }

    /// Opens what is there; a link on the way or at the end is an error.
    pub fn open(&self, name: &Below, flags: OFlags) -> io::Result<OwnedFd> {
        rustix::fs::openat2(&self.fd, name.text(), flags | OFlags::CLOEXEC, Mode::empty(), BENEATH)
            .map_err(in_words)
    }

    /// Opens a directory there, for reading its names and for what is done in it.
    pub fn open_dir(&self, name: &Below) -> io::Result<OwnedFd> {
        self.open(name, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// What is there now.
    pub fn look(&self, name: &Below) -> io::Result<FoundEntry> {
        if name.is_here() {
            return FoundEntry::of(&self.fd);
        }
        let fd = match self.open(name, ITSELF) {
            Ok(fd) => fd,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
                return self.link_on_the_way(name);
            }
            Err(error) if is_gone(&error) => return Ok(FoundEntry::Nothing),
            Err(error) => return Err(error),
        };
        seen(&fd, name)
    }

    /// Which thing there is: itself, or the link on the way to it. None when there is nothing.
    pub fn thing(&self, name: &Below) -> io::Result<Option<Identity>> {
        let at = match self.look(name)? {
            FoundEntry::Nothing => return Ok(None),
            FoundEntry::Link { at, .. } => at,
            found => return Ok(found.identity()),
        };
        match self.open(&at, ITSELF) {
            Ok(link) => Identity::of(&link).map(Some),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The sorted names in a directory, and what each is as far as the directory says.
    pub fn entries(&self, name: &Below) -> io::Result<Vec<(OsString, FileType)>> {
        tree::entries(self.open_dir(name)?)
    }

    fn link_on_the_way(&self, name: &Below) -> io::Result<FoundEntry> {
        for step in name.steps() {
            match self.open(&step, ITSELF) {
                Ok(fd) => match seen(&fd, &step)? {
                    found @ FoundEntry::Link { .. } => return Ok(found),
                    _ => continue,
                },
                Err(error) if is_gone(&error) => return Ok(FoundEntry::Nothing),
                Err(error) => return Err(error),
            }
        }
        Ok(FoundEntry::Nothing)
    }

    /// Where a name leads when links are followed that stay beneath the root: a name without links. None when it leads out of
    /// the root or nowhere.
    pub fn follow(&self, name: &Below) -> Option<Below> {
        let flags = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = OFlags::PATH | OFlags::CLOEXEC;
        let fd = rustix::fs::openat2(&self.fd, name.text(), open, Mode::empty(), flags).ok()?;
        let identity = Identity::of(&fd).ok()?;
        let found = self.name_of(&path_of(&fd)?)?;
        // The name was read after the look-up: it counts if it leads to the same thing.
        (self.look(&found).ok()?.identity() == Some(identity)).then_some(found)
    }

    /// What a name leads to when this root is the root of all paths: links are followed, and none leads out.
    pub fn follow_within(&self, name: &Below) -> Option<OwnedFd> {
        let flags = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let open = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.fd, name.text(), open, Mode::empty(), flags).ok()
    }

    /// Whether what is there belongs to this user, who can change its mode.
    pub fn is_ours(&self, name: &Below) -> io::Result<bool> {
        let stat = rustix::fs::fstat(self.open(name, ITSELF)?)?;
        Ok(stat.st_uid == rustix::process::geteuid().as_raw())
    }

    /// Lets the owner of a directory, and of every directory on the way to it, list, search and change it, as far as that is us. Says
    /// whether something has changed. A command can close a directory around what it made there; git works in it all the same.
    pub fn open_up(&self, name: &Below) -> io::Result<bool> {
        let mut has_changed = false;
        for step in [Below::here()].into_iter().chain(name.steps()) {
            let directory = match self.open(&step, PASSED) {
                Ok(directory) => directory,
                Err(error) if is_gone(&error) => break,
                Err(error) => return Err(error),
            };
            let stat = rustix::fs::fstat(&directory)?;
            let (mode, all) = (Mode::from_raw_mode(stat.st_mode), Mode::RWXU);
            if stat.st_uid == rustix::process::geteuid().as_raw() && !mode.contains(all) {
                // This very directory: a name could be another one by now.
                let through = format!("/proc/self/fd/{}", directory.as_raw_fd());
                rustix::fs::chmod(through.as_str(), mode | all)?;
                has_changed = true;
            }
        }
        Ok(has_changed)
    }

    /// Gives it a free name beside it: `config` becomes `config.not-used`. A link is moved itself. A directory that its owner may not
    /// change is opened up for that.
    pub fn put_aside(&self, name: &Below) -> io::Result<Below> {
        match self.renamed_aside(name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let (directory, _) = name.split().ok_or(io::ErrorKind::InvalidInput)?;
                if self.open_up(&directory)? { self.renamed_aside(name) } else { Err(error) }
            }
            renamed => renamed,
        }
    }

    fn renamed_aside(&self, name: &Below) -> io::Result<Below> {
        /// How many names are tried.
        const NAMES: usize = 1_000;
        let (directory, last) = name.split().ok_or(io::ErrorKind::InvalidInput)?;
        for number in 1..=NAMES {
            let mut aside = OsString::from(last);
            aside.push(".not-used");
            if number > 1 {
                aside.push(format!("-{number}"));
            }
            let other = directory.join(&aside)?;
            if self.thing(&other)?.is_none() && self.rename_in(&directory, last, &aside)? {
                return Ok(other);
            }
        }
        Err(io::Error::other("no name beside it is free"))
    }

    /// Gives what is called `name` in a directory another name there. False when there is nothing, or the other name is taken.
    fn rename_in(&self, directory: &Below, name: &OsStr, to: &OsStr) -> io::Result<bool> {
        let dir = self.open(directory, PASSED)?;
        match rustix::fs::renameat_with(&dir, name, &dir, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST | Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a link; anything else that is there by now stays.
    pub fn remove_link(&self, name: &Below) -> io::Result<()> {
        let (directory, last) = name.split().ok_or(io::ErrorKind::InvalidInput)?;
        match self.look(name)? {
            FoundEntry::Link { at, .. } if at == *name => {}
            _ => return Ok(()),
        }
        let remove = || {
            let unlinked = rustix::fs::unlinkat(self.open(&directory, PASSED)?, last, AtFlags::empty());
            unlinked.map_err(io::Error::from)
        };
        match remove() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && self.open_up(&directory)? => {
                remove()
            }
            Err(error) if is_gone(&error) => Ok(()),
            removed => removed,
        }
    }

    /// Makes a link in a directory; what is there already stays.
    pub fn link_in(&self, directory: &Below, name: &OsStr, to: &OsStr) -> io::Result<()> {
        match rustix::fs::symlinkat(to, self.open(directory, PASSED)?, name) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn seen(fd: &OwnedFd, name: &Below) -> io::Result<FoundEntry> {
    match FoundEntry::of(fd)? {
        FoundEntry::Link { to, .. } => Ok(FoundEntry::Link { at: name.clone(), to }),
        other => Ok(other),
    }
}

/// The path behind its first link; `..` in a link is taken away as far as it is plain.
#[expect(clippy::disallowed_methods, reason = "one link at a time; the caller judges where each leads")]
fn first_link_followed(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let ancestors: Vec<&Path> = path.ancestors().collect();
    let (link, to) = ancestors.iter().rev().find_map(|step| Some((*step, std::fs::read_link(step).ok()?)))?;
    let mut followed = link.parent()?.to_owned();
    for part in to.components().chain(path.strip_prefix(link).ok()?.components()) {
        match part {
            Component::ParentDir => drop(followed.pop()),
            Component::CurDir => {}
            part => followed.push(part),
        }
    }
    Some((link.to_owned(), followed))
}

/// Where an open descriptor is now, by the kernel.
#[expect(clippy::disallowed_methods, reason = "of the kernel's own files")]
fn path_of(fd: &OwnedFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    fn place() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for made in ["root/a/b", "root/c", "outside"] {
            fs::create_dir_all(dir.path().join(made)).unwrap();
        }
        fs::write(dir.path().join("root/a/b/f"), "f").unwrap();
        fs::write(dir.path().join("outside/f"), "secret").unwrap();
        let root = Root::pin(&dir.path().join("root")).unwrap();
        (dir, root)
    }

    fn name(text: &str) -> Below {
        Below::new(text).unwrap()
    }

    #[test]
    fn a18_no_look_up_beneath_a_root_follows_a_link() {
        let (dir, root) = place();
        let at = |path: &str| dir.path().join(path);
        assert!(matches!(root.look(&name("a/b/f")).unwrap(), FoundEntry::File { links: 1, .. }));
        assert!(matches!(root.look(&name("a")).unwrap(), FoundEntry::Directory(_)));
        assert_eq!(root.look(&name("none/x")).unwrap(), FoundEntry::Nothing);
        assert_eq!(root.look(&name("a/b/f/x")).unwrap(), FoundEntry::Nothing);
        symlink("../outside", at("root/out")).unwrap();
        symlink("a", at("root/in")).unwrap();
        for (through, link) in [("out", "out"), ("out/f", "out"), ("in/b/f", "in")] {
            let found = root.look(&name(through)).unwrap();
            assert!(
                matches!(&found, FoundEntry::Link { at, .. } if *at == name(link)),
                "{through}: {found:?}"
            );
        }
        let read = OFlags::RDONLY;
        assert!(root.open(&name("a/b/f"), read).is_ok());
        assert!(root.open(&name("in/b/f"), read).is_err() && root.open(&name("out/f"), read).is_err());
        assert_eq!(root.follow(&name("in/b/f")), Some(name("a/b/f")));
        assert_eq!((root.follow(&name("out/f")), root.follow(&name("none"))), (None, None));
    }

    #[test]
    fn a18_a_root_is_a_directory_and_not_a_path() {
        let (dir, root) = place();
        assert!(root.is_in_place().unwrap());
        fs::rename(dir.path().join("root"), dir.path().join("moved")).unwrap();
        assert!(!root.is_in_place().unwrap());
        // What is beneath it is found all the same.
        assert!(root.look(&name("a/b/f")).unwrap().identity().is_some());
        fs::create_dir(dir.path().join("root")).unwrap();
        assert!(!root.is_in_place().unwrap());
        fs::remove_dir(dir.path().join("root")).unwrap();
        symlink("moved", dir.path().join("root")).unwrap();
        assert!(!root.is_in_place().unwrap());
        assert!(Root::exactly(root.path(), root.identity()).unwrap().is_none());
        assert!(Root::plain(root.path()).is_err());
        assert_eq!(Root::pin(root.path()).unwrap().identity(), root.identity());
    }

    #[test]
    fn a18_a_link_that_an_agent_could_have_made_leads_to_no_added_directory() {
        let (dir, root) = place();
        let top = fs::canonicalize(dir.path()).unwrap();
        let writable = [root.path().to_owned()];
        let found = |path: &str| {
            Root::pin_through_links_outside(&top.join(path), &writable).map(|root| root.path().to_owned())
        };
        symlink("../outside", top.join("root/l")).unwrap();
        symlink("root/a", top.join("to")).unwrap();
        symlink("root", top.join("project")).unwrap();
        for (path, real) in [("root/a/b", "root/a/b"), ("to/b", "root/a/b"), ("outside/../root/c", "root/c")]
        {
            assert_eq!(found(path).unwrap(), top.join(real), "{path}");
        }
        for path in ["root/l", "root/a/../l", "outside/../root/l", "project/l"] {
            assert!(found(path).unwrap_err().to_string().contains("an agent could have made"), "{path}");
        }
        assert_eq!(found("root/none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a18_a_tool_is_found_through_links_that_no_agent_can_write() {
        let (dir, root) = place();
        let top = fs::canonicalize(dir.path()).unwrap();
        let writable = [root.path().to_owned()];
        let found =
            |path: &str| Root::pin_outside(&top.join(path), &writable).map(|root| root.path().to_owned());
        symlink("../outside", top.join("root/l")).unwrap();
        symlink("root/l", top.join("tool")).unwrap();
        symlink("outside/../outside", top.join("good")).unwrap();
        symlink("good", top.join("better")).unwrap();
        assert_eq!(found("better/f"), Some(top.join("outside/f")));
        assert_eq!([found("tool"), found("root/a"), found("none")], [None, None, None]);
        assert_eq!(Root::pin_outside(Path::new("/dev/null"), &[]).map(|_| ()), None);
    }

    #[test]
    fn a18_what_is_put_aside_is_put_aside_where_it_is() {
        let (dir, root) = place();
        let aside =
            |directory: &str| root.rename_in(&name(directory), OsStr::new("b"), OsStr::new("b.aside"));
        assert!(aside("a").unwrap() && !aside("a").unwrap());
        symlink("../outside", dir.path().join("root/l")).unwrap();
        fs::create_dir(dir.path().join("outside/b")).unwrap();
        assert!(aside("l").is_err() && dir.path().join("outside/b").exists());
        root.link_in(&name("c"), OsStr::new("x"), OsStr::new("../a")).unwrap();
        assert_eq!(fs::read_link(dir.path().join("root/c/x")).unwrap(), Path::new("../a"));
        assert!(root.link_in(&name("l"), OsStr::new("x"), OsStr::new("y")).is_err());
    }
}
