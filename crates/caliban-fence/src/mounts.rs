//! The files that a fenced program finds: a root directory of its own that holds what is shown, and nothing else.
//!
//! All handles are taken before anything is covered, so no mount can change what a later one shows. What a socket in the
//! file system leads to is out of reach only if the socket is not there: so nothing is hidden by covering it, everything is
//! absent unless it is shown.

use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::CWD,
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change,
        move_mount, open_tree, unmount,
    },
};

use crate::{
    fence::{Access, Fence, SYSTEM},
    helper::StepError,
    sys::{MountAttributes, set_mount},
};

/// Where the new root is put together; the machine's own is out of the way by then.
const BUILDING: &str = "/tmp";
/// What of `/dev` there is.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// The most that a program can write into directories that are only in memory.
const MEMORY: &std::ffi::CStr = c"mode=755,size=50%";
/// Directories of its own that a program can write to.
pub(crate) const PRIVATE: [&str; 4] = ["/tmp", "/var/tmp", "/run", "/dev/shm"];

const FIXED: MountAttributes = MountAttributes { read_only: true, keeps_devices: false };

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
    let system = system()?;
    let mut devices = Vec::new();
    for name in DEVICES {
        let mount = handle(&Path::new("/dev").join(name), true, true)?;
        devices.push(ShownMount { mount, target: Path::new("/dev").join(name), is_directory: false });
    }
    let binds = binds(fence)?;
    let tmp = fence.tmp.as_ref().map(|tmp| handle(tmp.path(), false, false)).transpose()?;
    // Covers `/tmp`: from here on only the handles lead to what was there.
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", BUILDING, "tmpfs", flags, MEMORY)
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
    if let Some(mount) = tmp {
        put(&ShownMount { mount, target: PathBuf::from("/tmp"), is_directory: true })?;
    }
    for device in &devices {
        put(device)?;
    }
    terminals()?;
    let proc = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    make_directory(Path::new("/proc"))?;
    mount("proc", "proc", "proc", proc, c"").map_err(|error| format!("no /proc of its own: {error}"))?;
    home(fence.home.path())?;
    for shown in &binds {
        put(shown)?;
    }
    rustix::process::pivot_root(".", ".").map_err(|error| format!("no root of its own: {error}"))?;
    unmount(".", UnmountFlags::DETACH).map_err(|error| format!("the machine's root stays: {error}"))?;
    std::env::set_current_dir("/").map_err(|error| format!("no root of its own: {error}"))?;
    // Only now a link leads where it will lead the program.
    masks(fence)
}

enum System {
    /// `/bin` is often a link.
    Link(PathBuf, PathBuf),
    Tree(ShownMount),
}

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

fn binds(fence: &Fence) -> Result<Vec<ShownMount>, StepError> {
    let mut binds = Vec::new();
    for bind in &fence.binds {
        let source = bind.source.path();
        let is_directory = match fs::metadata(source) {
            Ok(found) => found.is_dir(),
            // What this user cannot look at nobody in the fence could: a directory of `PATH` that is another user's.
            Err(error) if bind.optional && is_out_of_sight(&error) => continue,
            Err(error) => return Err(words("cannot show", source, &error)),
        };
        let mount = handle(source, bind.access == Access::ReadOnly, false)?;
        binds.push(ShownMount { mount, target: bind.target.path().to_owned(), is_directory });
    }
    // Outer ones first. The order of those for the same place stays.
    binds.sort_by_key(|shown: &ShownMount| shown.target.components().count());
    Ok(binds)
}

fn is_out_of_sight(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
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
    attach(shown.mount.as_fd(), target)
}

fn attach(handle: impl AsFd, target: &Path) -> Result<(), StepError> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    move_mount(handle, "", CWD, below(target), flags)
        .map_err(|error| words("cannot show", target, &error.into()))
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
fn home(home: &Path) -> Result<(), StepError> {
    if home.parent().is_none() {
        return Ok(());
    }
    // It may be somewhere else by its own name.
    let place = fs::read_link(home).is_err().then(|| home.to_owned());
    let place = place.or_else(|| fs::canonicalize(home).ok()).unwrap_or_else(|| home.to_owned());
    if place.starts_with("/usr") || place.starts_with("/opt") || place.starts_with("/etc") {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        return mount("tmpfs", below(&place), "tmpfs", flags, MEMORY)
            .map_err(|error| words("cannot empty", &place, &error.into()));
    }
    make_directory(&place)?;
    if place != home {
        make_directory(home.parent().unwrap_or(home))?;
        symlink(&place, below(home)).map_err(|error| words("cannot link", home, &error))?;
    }
    Ok(())
}

/// Puts an empty file or directory that nobody can read over what is masked. What is not in the view needs no mask.
fn masks(fence: &Fence) -> Result<(), StepError> {
    let (file, directory) = (Path::new(".mask-file"), Path::new(".mask-directory"));
    let made = || -> io::Result<()> {
        fs::write(file, "")?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o000))?;
        fs::create_dir(directory)?;
        fs::set_permissions(directory, fs::Permissions::from_mode(0o000))
    };
    made().map_err(|error| format!("cannot mask: {error}"))?;
    for mask in &fence.masks {
        let target = mask.path();
        let source = match fs::metadata(below(target)) {
            Ok(found) if found.is_dir() => directory,
            Ok(_) => file,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                continue;
            }
            Err(error) => return Err(words("cannot mask", target, &error)),
        };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let handle =
            open_tree(CWD, source, flags).map_err(|error| words("cannot mask", target, &error.into()))?;
        set_mount(&handle, FIXED).map_err(|error| words("cannot mask", target, &error))?;
        attach(&handle, target)?;
    }
    let gone = || -> io::Result<()> {
        fs::remove_file(file)?;
        fs::remove_dir(directory)
    };
    // A busy directory is one that is mounted; it has no content either.
    let _stays_and_is_empty = gone();
    Ok(())
}

fn words(what: &str, path: &Path, error: &io::Error) -> StepError {
    format!("{what} {}: {error}", path.display())
}
