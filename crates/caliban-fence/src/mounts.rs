//! The files that a fenced program finds: a root directory of its own that holds what is shown, and nothing else.
//!
//! All handles are taken before anything is covered, so no mount can change what a later one shows. What a socket in the
//! file system leads to is out of reach only if the socket is not there: so nothing is hidden by covering it, everything is
//! absent unless it is shown.
//!
//! An agent may have written everything in the trees that are shown, and may be changing it now. So nothing in them is found by
//! its name alone: sources and targets are opened without following a link and compared with what was judged.

use std::{
    borrow::Cow,
    ffi::{CStr, CString},
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use caliban_contract::tree_limits::TreeLimits;
use caliban_core::fence::Profile;
use caliban_rooted::{Below, FoundEntry, Identity, Root, open_exactly};
use rustix::{
    fs::{CWD, Mode, OFlags},
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change,
        move_mount, open_tree, unmount,
    },
};

use crate::{
    fence::{Access, Bind, Fence, Hold, SYSTEM},
    helper::{CHANGED, StepError},
    sys::{MountAttributes, set_mount},
};

/// Where the new root is put together; the machine's own is out of the way by then.
const BUILDING: &str = "/tmp";
/// What of `/dev` there is.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// The most that a program can write into directories that are only in memory, where it has no limit of memory.
const MEMORY: &CStr = c"mode=755,size=50%";
/// Directories of its own that a program can write to.
pub(crate) const PRIVATE: [&str; 4] = ["/tmp", "/var/tmp", "/run", "/dev/shm"];

/// Where empty things are until `/proc` covers them.
const EMPTY: &str = "proc";
const FILE: &str = "file";
const DIRECTORY: &str = "directory";

const FIXED: MountAttributes = MountAttributes { read_only: true, keeps_devices: false };

/// Of a mount onto itself: whatever the mount around it has stays.
const AS_AROUND: MountAttributes = MountAttributes { read_only: false, keeps_devices: true };

/// A handle on something that is shown, and where.
struct ShownMount {
    mount: OwnedFd,
    target: PathBuf,
    is_directory: bool,
}

/// Builds the new root and makes it the root of this process. Needs a mount namespace of its own.
pub(crate) fn build(fence: &Fence) -> Result<(), StepError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(|error| format!("mounts stay shared: {error}"))?;
    let binds = binds(fence)?;
    if fence.profile == Profile::Open {
        whole_machine()?
    } else {
        own_root(fence)?
    }
    empty_things()?;
    let building = Path::new(BUILDING);
    let root = Root::plain(building).map_err(|error| words("cannot look at", building, &error))?;
    for step in steps(fence, binds) {
        step.take(&root)?;
    }
    // A tree that is shown has its own links.
    let is_shown = |path: &Path| fence.binds.iter().any(|bind| path.starts_with(bind.target.path()));
    for (name, to) in fence.links.iter().filter(|(name, _)| !is_shown(name.path())) {
        link(&root, name.path(), to.path())?;
    }
    masks(fence, &root)?;
    drop(root);
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    mount("proc", "proc", "proc", flags, c"").map_err(|error| format!("no /proc of its own: {error}"))?;
    rustix::process::pivot_root(".", ".").map_err(|error| format!("no root of its own: {error}"))?;
    unmount(".", UnmountFlags::DETACH).map_err(|error| format!("the machine's root stays: {error}"))?;
    std::env::set_current_dir("/").map_err(|error| format!("no root of its own: {error}"))
}

/// The machine as it is, in the place of a root: what is held in it is all that differs.
fn whole_machine() -> Result<(), StepError> {
    let machine = handle(Path::new("/"), false, true)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&machine, "", CWD, BUILDING, flags).map_err(|error| format!("no root of its own: {error}"))?;
    std::env::set_current_dir(BUILDING).map_err(|error| format!("no root of its own: {error}"))
}

/// A root in memory with the system in it, and directories of its own.
fn own_root(fence: &Fence) -> Result<(), StepError> {
    let system = system()?;
    let mut devices = Vec::new();
    for name in DEVICES {
        let mount = handle(&Path::new("/dev").join(name), true, true)?;
        devices.push(ShownMount { mount, target: Path::new("/dev").join(name), is_directory: false });
    }
    // Covers `/tmp`: from here on only the handles lead to what was there.
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", BUILDING, "tmpfs", flags, &*memory(fence))
        .map_err(|error| format!("no root of its own: {error}"))?;
    std::env::set_current_dir(BUILDING).map_err(|error| format!("no root of its own: {error}"))?;
    for place in PRIVATE {
        private_directory(place)?;
    }
    for entry in system {
        match entry {
            System::Link(place, to) => {
                symlink(to, below(&place)).map_err(|error| words("cannot link", &place, &error))?;
            }
            System::Tree(shown) => put(&shown)?,
        }
    }
    for device in &devices {
        put(device)?;
    }
    terminals()?;
    make_directory(Path::new("/proc"))?;
    home(fence)
}

/// The options of a directory in memory: what is written there counts for nobody's processes, so it is held apart.
fn memory(fence: &Fence) -> Cow<'static, CStr> {
    let half = TreeLimits::machine_memory().map(|all| all / 2);
    match fence.limits.memory.filter(|most| half.is_some_and(|half| *most < half)) {
        Some(most) => CString::new(format!("mode=755,size={most}")).map_or(MEMORY.into(), Cow::Owned),
        None => MEMORY.into(),
    }
}

/// One mount in what is shown.
struct Step {
    target: PathBuf,
    what: Mounted,
}

enum Mounted {
    /// A handle on what is shown there.
    Bind { mount: OwnedFd, is_directory: bool },
    /// The directory itself: it can be used as before, but not be renamed.
    Way,
    /// The place itself, held.
    Held(Identity, Hold),
}

/// All mounts, the outer ones first. The order of those for the same place stays.
fn steps(fence: &Fence, binds: Vec<(ShownMount, Access)>) -> Vec<Step> {
    let shown: Vec<(PathBuf, Access)> =
        binds.iter().map(|(shown, access)| (shown.target.clone(), *access)).collect();
    let is_hidden = |target: &Path| {
        let hidden = fence.held.iter().filter(|held| held.hold == Hold::Hidden);
        hidden.map(|held| held.target.path()).any(|hidden| target != hidden && target.starts_with(hidden))
    };
    // What covers a place holds it; and what is hidden has nothing in it.
    let held = fence.held.iter().filter(|held| {
        let target = held.target.path();
        !shown.iter().any(|(bound, _)| bound == target) && !is_hidden(target)
    });
    let mut steps: Vec<Step> = held
        .map(|held| Step {
            target: held.target.path().to_owned(),
            what: Mounted::Held(held.identity, held.hold),
        })
        .collect();
    steps.extend(binds.into_iter().map(|(ShownMount { mount, target, is_directory }, _)| Step {
        target,
        what: Mounted::Bind { mount, is_directory },
    }));
    let mut ways: Vec<PathBuf> =
        steps.iter().flat_map(|step| ways_to(&step.target, &shown, fence.profile)).collect();
    ways.sort();
    ways.dedup();
    ways.retain(|way| !steps.iter().any(|step| step.target == *way));
    steps.extend(ways.into_iter().map(|target| Step { target, what: Mounted::Way }));
    steps.sort_by_key(|step| step.target.components().count());
    steps
}

/// The directories between a place and the directory around it that can be changed: whoever renames one of them moves the place.
fn ways_to(target: &Path, shown: &[(PathBuf, Access)], profile: Profile) -> Vec<PathBuf> {
    let around = shown.iter().filter(|(bound, _)| target != bound && target.starts_with(bound));
    let top = match around.max_by_key(|(bound, _)| bound.components().count()) {
        Some((bound, Access::ReadWrite)) => bound.as_path(),
        Some((_, Access::ReadOnly)) => return Vec::new(),
        None if profile == Profile::Open => Path::new("/"),
        None => return Vec::new(),
    };
    let between = target.ancestors().skip(1).take_while(|way| *way != top && way.starts_with(top));
    between.map(Path::to_owned).collect()
}

impl Step {
    fn take(&self, root: &Root) -> Result<(), StepError> {
        let target = self.target.as_path();
        let name = Below::new(below(target)).map_err(|error| words("cannot show", target, &error))?;
        match &self.what {
            Mounted::Bind { mount, is_directory } => {
                attach(mount, &place(root, target, &name, *is_directory)?, target)
            }
            Mounted::Way => match root.look(&name) {
                // In a directory of the fence's own: what is shown further in makes it.
                Ok(FoundEntry::Nothing) => Ok(()),
                _ => {
                    let place = find(root, target, &name)?;
                    attach(again(&place, target, AS_AROUND)?, &place, target)
                }
            },
            Mounted::Held(identity, hold) => {
                let place = find(root, target, &name)?;
                let found = Identity::of(&place).map_err(|error| words("cannot look at", target, &error))?;
                if found != *identity {
                    return Err(changed(target));
                }
                let mount = match hold {
                    Hold::ReadOnly => {
                        again(&place, target, MountAttributes { read_only: true, ..AS_AROUND })?
                    }
                    Hold::Hidden => {
                        let found = FoundEntry::of(&place)
                            .map_err(|error| words("cannot look at", target, &error))?;
                        empty(matches!(found, FoundEntry::Directory(_)), target)?
                    }
                };
                attach(mount, &place, target)
            }
        }
    }
}

/// What is at a place in the root, without a link on the way; what was judged was there.
fn find(root: &Root, target: &Path, name: &Below) -> Result<OwnedFd, StepError> {
    root.open(name, OFlags::PATH | OFlags::NOFOLLOW).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => words("cannot look at", target, &error),
        _ => changed(target),
    })
}

/// Where something is to be shown: made where it is missing.
fn place(root: &Root, target: &Path, name: &Below, wants_directory: bool) -> Result<OwnedFd, StepError> {
    let cannot = |error: io::Error| words("cannot make", target, &error);
    for step in name.steps() {
        let is_last = step == *name;
        match root.look(&step).map_err(|error| words("cannot look at", target, &error))? {
            FoundEntry::Nothing => make(root, &step, !is_last || wants_directory).map_err(cannot)?,
            FoundEntry::Directory(_) if !is_last || wants_directory => {}
            FoundEntry::File { .. } | FoundEntry::Special(_) if is_last && !wants_directory => {}
            FoundEntry::Link { .. } => return Err(changed(target)),
            _ => return Err(format!("{} is another kind of file in the fence", target.display())),
        }
    }
    find(root, target, name)
}

/// Another name of something that is shown, where there is nothing.
fn link(root: &Root, target: &Path, to: &Path) -> Result<(), StepError> {
    let cannot = |error: io::Error| words("cannot link", target, &error);
    let name = Below::new(below(target)).map_err(cannot)?;
    let Some((parent, last)) = name.split() else { return Ok(()) };
    for step in parent.steps() {
        match root.look(&step).map_err(cannot)? {
            FoundEntry::Directory(_) => {}
            FoundEntry::Nothing if make(root, &step, true).is_ok() => {}
            _ => return Ok(()),
        }
    }
    match root.link_in(&parent, last, to.as_os_str()) {
        Err(error) if error.kind() != io::ErrorKind::ReadOnlyFilesystem => Err(cannot(error)),
        _ => Ok(()),
    }
}

fn make(root: &Root, name: &Below, directory: bool) -> io::Result<()> {
    let Some((parent, last)) = name.split() else { return Ok(()) };
    let parent = root.open(&parent, OFlags::PATH | OFlags::DIRECTORY)?;
    if directory {
        return Ok(rustix::fs::mkdirat(&parent, last, Mode::from_raw_mode(0o755))?);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&parent, last, flags, Mode::from_raw_mode(0o644))?;
    Ok(())
}

/// What is there once more, to be mounted onto itself.
fn again(place: &OwnedFd, target: &Path, wanted: MountAttributes) -> Result<OwnedFd, StepError> {
    let flags = OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let mount = open_tree(place, "", flags).map_err(|error| words("cannot hold", target, &error.into()))?;
    set_mount(&mount, wanted).map_err(|error| words("cannot hold", target, &error))?;
    Ok(mount)
}

enum System {
    /// `/bin` is often a link.
    Link(PathBuf, PathBuf),
    Tree(ShownMount),
}

#[expect(clippy::disallowed_methods, reason = "the system's own places, which no agent can write")]
fn system() -> Result<Vec<System>, StepError> {
    let mut found = Vec::new();
    for place in SYSTEM {
        let place = PathBuf::from(place);
        match fs::symlink_metadata(&place) {
            Ok(kind) if kind.is_symlink() => {
                let to = fs::read_link(&place).map_err(|error| words("cannot read", &place, &error))?;
                found.push(System::Link(place, to));
            }
            Ok(_) => {
                let mount = handle(&place, true, false)?;
                found.push(System::Tree(ShownMount { mount, target: place, is_directory: true }));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(words("cannot look at", &place, &error)),
        }
    }
    // Often a link to a file that the name service keeps in `/run`.
    if let Ok(file) = fs::canonicalize("/etc/resolv.conf")
        && !file.starts_with("/etc")
    {
        let mount = handle(&file, true, false)?;
        found.push(System::Tree(ShownMount { mount, target: file, is_directory: false }));
    }
    Ok(found)
}

/// Handles on all that is shown; taken while the machine's own root is still there.
fn binds(fence: &Fence) -> Result<Vec<(ShownMount, Access)>, StepError> {
    let mut binds = Vec::new();
    for bind in &fence.binds {
        let source = bind.source.path();
        let Some(found) = judged(bind)? else { continue };
        let stat = rustix::fs::fstat(&found).map_err(|error| words("cannot show", source, &error.into()))?;
        let is_directory = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
        let read_only = bind.access == Access::ReadOnly;
        let mount = again(&found, source, MountAttributes { read_only, keeps_devices: false })?;
        binds.push((ShownMount { mount, target: bind.target.path().to_owned(), is_directory }, bind.access));
    }
    Ok(binds)
}

/// What was judged, if it is still there. What this user cannot look at nobody in the fence could: a directory of `PATH` that is
/// another user's.
#[expect(clippy::disallowed_methods, reason = "only whether it is gone; what is another thing is refused")]
fn judged(bind: &Bind) -> Result<Option<OwnedFd>, StepError> {
    let source = bind.source.path();
    match open_exactly(source, bind.identity) {
        Ok(Some(found)) => Ok(Some(found)),
        Ok(None) if bind.optional && source.symlink_metadata().is_err() => Ok(None),
        Ok(None) => Err(changed(source)),
        Err(error) if bind.optional && error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(words("cannot show", source, &error)),
    }
}

/// Whoever asked may judge again: nothing has run.
fn changed(path: &Path) -> StepError {
    format!("{CHANGED}{}", path.display())
}

/// A detached copy of what is mounted at a place, with all mounts in it.
fn handle(path: &Path, read_only: bool, keeps_devices: bool) -> Result<OwnedFd, StepError> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let mount = open_tree(CWD, path, flags).map_err(|error| words("cannot show", path, &error.into()))?;
    set_mount(&mount, MountAttributes { read_only, keeps_devices })
        .map_err(|error| words("cannot show", path, &error))?;
    Ok(mount)
}

/// An absolute path in the root that is being built.
fn below(path: &Path) -> &Path {
    match path.strip_prefix("/") {
        Ok(path) if !path.as_os_str().is_empty() => path,
        _ => Path::new("."),
    }
}

/// Shows something of the system, while nothing is there that an agent could have written.
#[expect(clippy::disallowed_methods, reason = "in a root that is being built, where no agent was")]
fn put(shown: &ShownMount) -> Result<(), StepError> {
    let (target, place) = (&shown.target, below(&shown.target));
    match fs::metadata(place) {
        Ok(found) if found.is_dir() == shown.is_directory => {}
        Ok(_) => return Err(format!("{} is another kind of file in the fence", target.display())),
        Err(_) if shown.is_directory => make_directory(target)?,
        Err(_) => {
            make_directory(target.parent().unwrap_or(target))?;
            fs::write(place, "").map_err(|error| words("cannot make", target, &error))?;
        }
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&shown.mount, "", CWD, place, flags)
        .map_err(|error| words("cannot show", target, &error.into()))
}

/// Mounts it onto a place that is held open.
fn attach(mount: impl AsFd, place: &OwnedFd, target: &Path) -> Result<(), StepError> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", place, "", flags).map_err(|error| words("cannot show", target, &error.into()))
}

fn make_directory(path: &Path) -> Result<(), StepError> {
    fs::create_dir_all(below(path)).map_err(|error| words("cannot make", path, &error))
}

fn private_directory(path: &str) -> Result<(), StepError> {
    let path = Path::new(path);
    make_directory(path)?;
    fs::set_permissions(below(path), fs::Permissions::from_mode(0o1777))
        .map_err(|error| words("cannot make", path, &error))
}

/// Terminals of its own: programs that open one (`script`, a test of a terminal program) find none of the machine's.
fn terminals() -> Result<(), StepError> {
    make_directory(Path::new("/dev/pts"))?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devpts", "dev/pts", "devpts", flags, c"newinstance,ptmxmode=0666,mode=0620")
        .map_err(|error| format!("no terminals of its own: {error}"))?;
    for (name, to) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlink(to, Path::new("dev").join(name)).map_err(|error| format!("/dev/{name}: {error}"))?;
    }
    Ok(())
}

/// An empty home directory in memory.
#[expect(clippy::disallowed_methods, reason = "the home itself, in a directory that no agent can write")]
fn home(fence: &Fence) -> Result<(), StepError> {
    let home = fence.home.path();
    if home.parent().is_none() {
        return Ok(());
    }
    // It may be somewhere else by its own name.
    let place = fs::read_link(home).is_err().then(|| home.to_owned());
    let place = place.or_else(|| fs::canonicalize(home).ok()).unwrap_or_else(|| home.to_owned());
    if place.starts_with("/usr") || place.starts_with("/opt") || place.starts_with("/etc") {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        return mount("tmpfs", below(&place), "tmpfs", flags, &*memory(fence))
            .map_err(|error| words("cannot empty", &place, &error.into()));
    }
    make_directory(&place)?;
    if place != home {
        make_directory(home.parent().unwrap_or(home))?;
        symlink(&place, below(home)).map_err(|error| words("cannot link", home, &error))?;
    }
    Ok(())
}

/// An empty file and an empty directory that nobody can read, where `/proc` will be: that covers them.
fn empty_things() -> Result<(), StepError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", EMPTY, "tmpfs", flags, MEMORY).map_err(|error| format!("cannot mask: {error}"))?;
    let made = || -> io::Result<()> {
        let closed = || fs::Permissions::from_mode(0o000);
        fs::write(Path::new(EMPTY).join(FILE), "")?;
        fs::set_permissions(Path::new(EMPTY).join(FILE), closed())?;
        fs::create_dir(Path::new(EMPTY).join(DIRECTORY))?;
        fs::set_permissions(Path::new(EMPTY).join(DIRECTORY), closed())
    };
    made().map_err(|error| format!("cannot mask: {error}"))
}

/// What takes the place of something hidden.
fn empty(directory: bool, target: &Path) -> Result<OwnedFd, StepError> {
    let source = Path::new(EMPTY).join(if directory { DIRECTORY } else { FILE });
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(CWD, source, flags).map_err(|error| words("cannot mask", target, &error.into()))?;
    set_mount(&mount, FIXED).map_err(|error| words("cannot mask", target, &error))?;
    Ok(mount)
}

/// Hides what is masked by name. No agent can write there, so links are followed; what is not in the view needs no mask.
fn masks(fence: &Fence, root: &Root) -> Result<(), StepError> {
    for mask in &fence.masks {
        let target = mask.path();
        let Some(real) = root.follow_within(&Below::new(below(target)).unwrap_or_default()) else { continue };
        let found = FoundEntry::of(&real).map_err(|error| words("cannot mask", target, &error))?;
        attach(empty(matches!(found, FoundEntry::Directory(_)), target)?, &real, target)?;
    }
    Ok(())
}

fn words(what: &str, path: &Path, error: &io::Error) -> StepError {
    format!("{what} {}: {error}", path.display())
}
