//! The system calls that no safe wrapper has. The only unsafe code of the workspace is in this file.
//!
//! All but [`move_variables`] and [`take_variables`] is called by the helper ([`crate::fence_main`], [`crate::fence_child`]). Each caller has one thread.
#![expect(
    unsafe_code,
    reason = "fork, mount_setattr, close_range and the environment's block have no safe wrapper"
)]

use std::{
    ffi::{CString, OsStr, OsString},
    io,
    os::{
        fd::{AsFd, AsRawFd, RawFd},
        unix::ffi::OsStrExt,
    },
};

use rustix::{
    process::{Pid, Signal},
    thread::UnshareFlags,
};

/// What becomes of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MountAttributes {
    pub(crate) read_only: bool,
    pub(crate) keeps_devices: bool,
}

/// The child, or none in the child.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: this process has one thread, so that no lock is held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        // -1 would be taken for a process: signals to it go to everybody.
        pid if pid < 0 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Ends this process at once: nothing that belongs to a process it was forked from is run or written.
pub(crate) fn leave(code: u8) -> ! {
    // SAFETY: it does not return, and touches no memory.
    unsafe { libc::_exit(code.into()) }
}

pub(crate) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: `CLONE_FILES` is not among the flags of the callers; the others do not touch memory or descriptors.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Closes every descriptor from `first` to `last`, both included.
pub(crate) fn close_range(first: RawFd, last: RawFd) -> io::Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: no value of ours owns one of these descriptors: the callers leave out the ones that they hold.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the attributes of a detached mount and of all mounts in it.
pub(crate) fn set_mount(mount: impl AsFd, wanted: MountAttributes) -> io::Result<()> {
    let mut set = libc::MOUNT_ATTR_NOSUID;
    if wanted.read_only {
        set |= libc::MOUNT_ATTR_RDONLY;
    }
    if !wanted.keeps_devices {
        set |= libc::MOUNT_ATTR_NODEV;
    }
    let attributes = libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the path is a NUL-terminated constant, and the structure lives until the call is over.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a signal does to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposition {
    Default,
    Ignored,
}

pub(crate) fn dispose(signal: Signal, disposition: Disposition) {
    let handler = match disposition {
        Disposition::Default => libc::SIG_DFL,
        Disposition::Ignored => libc::SIG_IGN,
    };
    // SAFETY: both are constants of the system, not functions of ours.
    unsafe { libc::signal(signal.as_raw(), handler) };
}

/// Takes variables out of the environment, so that no program inherits them; returns them. Those that are not `shown` any
/// more are also overwritten where the kernel shows them.
#[expect(
    clippy::disallowed_methods,
    reason = "what is looked for is where the variables are, not what they say"
)]
pub(crate) fn take_variables(
    is_taken: impl Fn(&OsStr, &OsStr) -> bool,
    stays_shown: bool,
) -> Vec<(OsString, OsString)> {
    let taken: Vec<_> = std::env::vars_os().filter(|(name, value)| is_taken(name, value)).collect();
    for (name, value) in &taken {
        let Ok(text) = CString::new(name.as_bytes()) else { continue };
        // SAFETY: the name is NUL-terminated, and no other thread changes the environment.
        let shown = unsafe { libc::getenv(text.as_ptr()) };
        // SAFETY: there is one thread.
        unsafe { std::env::remove_var(name) };
        if !shown.is_null() && !stays_shown {
            // SAFETY: this was the value of the entry, which is now of nobody: so many bytes stand before its NUL.
            unsafe { shown.write_bytes(0, value.len()) };
        }
    }
    taken
}

/// Moves variables out of the memory that the kernel shows as `/proc/PID/environ`: each lives on as a copy elsewhere, which
/// programs that we start inherit, and its value is overwritten where it was.
#[expect(
    clippy::disallowed_methods,
    reason = "what is looked for is where the variables are, not what they say"
)]
pub(crate) fn move_variables(stays: impl Fn(&OsStr) -> bool) {
    for (name, value) in std::env::vars_os().filter(|(name, _)| !stays(name)) {
        let Ok(text) = CString::new(name.as_bytes()) else { continue };
        // SAFETY: the name is NUL-terminated, and no other thread changes the environment.
        let shown = unsafe { libc::getenv(text.as_ptr()) };
        if shown.is_null() {
            continue;
        }
        // SAFETY: there is one thread. The new entry is a copy: `value` is no part of the environment.
        unsafe { std::env::set_var(&name, &value) };
        // SAFETY: this was the value of the entry, which is now of nobody: so many bytes stand before its NUL.
        unsafe { shown.write_bytes(0, value.len()) };
    }
}
