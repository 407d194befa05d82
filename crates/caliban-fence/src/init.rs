//! The first process of the new process namespace: it builds the fence from within, starts the program and reaps.
//!
//! It ends when the last process in the namespace has ended. Its own end ends all others, whatever they do: so nothing of
//! the program is left when its keeper kills this one.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Write,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::Path,
    process::Command,
};

use caliban_core::fence::Profile;
use caliban_process::with_room;
use rustix::{
    process::{Signal, WaitOptions},
    thread::{CapabilitySet, CapabilitySets, UnshareFlags},
};

use crate::{
    NOT_FENCED,
    fence::{FencedCommand, Network},
    helper::{StepError, dies_with, silence},
    landlock, mounts,
    sys::{self, Disposition},
    system_calls,
};

/// Signals that the program must not find ignored.
const RESET: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::PIPE];

/// Variables that lead to sockets outside: they are not there, and programs would wait for them or complain.
const SOCKETS: [&str; 9] = [
    "TMUX",
    "TMUX_PANE",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DOCKER_HOST",
    "XDG_RUNTIME_DIR",
    "WAYLAND_DISPLAY",
];
/// Variables that name a directory of the user's; outside of the home directory it is not there.
const DIRECTORIES: [&str; 4] = ["XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"];
/// The temporary directory is the fence's own; git does not try to refresh an index that it cannot write.
const SET: [(&str, &str); 2] = [("TMPDIR", "/tmp"), ("GIT_OPTIONAL_LOCKS", "0")];

fn is_kept(name: &OsStr, value: &OsStr, home: &Path) -> bool {
    let is_in = |names: &[&str]| names.iter().any(|known| name == *known);
    !is_in(&SOCKETS) && (!is_in(&DIRECTORIES) || Path::new(value).starts_with(home))
}

pub(crate) fn run(order: &FencedCommand, tell_reason: OwnedFd, tell_ended: OwnedFd) -> u8 {
    match start(order, &tell_reason) {
        Ok(Some(program)) => {
            drop(tell_reason);
            reap(program, tell_ended)
        }
        Ok(None) => NOT_FENCED,
        Err(reason) => {
            say(&tell_reason, &reason);
            NOT_FENCED
        }
    }
}

fn say(tell_reason: &OwnedFd, reason: &str) {
    if let Ok(pipe) = tell_reason.try_clone() {
        let _nobody_listens = File::from(pipe).write_all(reason.as_bytes());
    }
}

/// The program's process; none in a child that could not become the program.
fn start(order: &FencedCommand, tell_reason: &OwnedFd) -> Result<Option<rustix::process::Pid>, StepError> {
    // Its parent is in another namespace, where it has no number.
    dies_with(None)?;
    rustix::process::setsid().map_err(|error| format!("no session: {error}"))?;
    rustix::thread::set_no_new_privs(true).map_err(|error| format!("no_new_privs: {error}"))?;
    sys::unshare(UnshareFlags::NEWNS).map_err(|error| format!("no mounts of its own: {error}"))?;
    mounts::build(&order.fence)?;
    drop_capabilities()?;
    // In an open fence everything is shown: only what is held in it cannot be reached, and mounts alone hold that.
    if order.fence.profile != Profile::Open {
        landlock::enforce(&order.fence)?;
        system_calls::enforce()?;
    }
    match with_room(sys::fork).map_err(|error| format!("no third process: {error}"))? {
        Some(program) => Ok(Some(program)),
        None => {
            say(tell_reason, &become_program(order));
            Ok(None)
        }
    }
}

/// The fence's settings of git, behind those that the environment has: git takes the last one of a name.
fn git_settings(order: &FencedCommand) -> Vec<(String, OsString)> {
    const COUNT: &str = "GIT_CONFIG_COUNT";
    let settings = &order.fence.git;
    let given = order.environment.iter().find(|(name, _)| name.0 == COUNT);
    // Git refuses to work with a count that is no number.
    let given: usize = given.and_then(|(_, count)| count.0.to_str()?.parse::<u16>().ok()).unwrap_or(0).into();
    let mut variables = Vec::new();
    for (at, (key, value)) in settings.iter().enumerate() {
        variables.push((format!("GIT_CONFIG_KEY_{}", given + at), key.0.clone()));
        variables.push((format!("GIT_CONFIG_VALUE_{}", given + at), value.0.clone()));
    }
    if !settings.is_empty() {
        variables.push((COUNT.to_owned(), (given + settings.len()).to_string().into()));
    }
    variables
}

/// Returns only with the reason why it could not.
fn become_program(order: &FencedCommand) -> StepError {
    for signal in RESET {
        sys::dispose(signal, Disposition::Default);
    }
    let mut command = Command::new(&order.program.0);
    command.args(order.arguments.iter().map(|argument| &argument.0));
    let kept =
        order.environment.iter().filter(|(name, value)| is_kept(&name.0, &value.0, order.fence.home.path()));
    command.env_clear().envs(kept.map(|(name, value)| (&name.0, &value.0))).envs(SET);
    command
        .envs(git_settings(order))
        .envs(order.fence.variables.iter().map(|(name, value)| (&name.0, &value.0)));
    if matches!(order.fence.network, Network::Proxy(_)) {
        command.envs(crate::loopback::variables());
    }
    command.current_dir(order.directory.path()).process_group(0);
    let error = command.exec();
    format!("{} in {}: {error}", order.program.0.display(), order.directory.0.display())
}

/// Also those that this process could get again.
pub(crate) fn drop_capabilities() -> Result<(), StepError> {
    let words = |error: rustix::io::Errno| format!("capabilities stay: {error}");
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Above the last one that this kernel knows.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(words(error)),
        }
    }
    rustix::thread::clear_ambient_capability_set().map_err(words)?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, none).map_err(words)
}

/// Waits for the last process. The program's end is told at once: what it left has a moment to end by itself.
fn reap(program: rustix::process::Pid, tell_ended: OwnedFd) -> u8 {
    let _its_streams_stay_open = silence();
    let mut tell_ended = Some(tell_ended);
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program => {
                let told = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => code,
                    (None, Some(signal)) => signal << 8,
                    (None, None) => continue,
                };
                // The helper's end is no reason to end any more.
                let _ends_at_once = rustix::process::set_parent_process_death_signal(None);
                if let Some(pipe) = tell_ended.take() {
                    let _helper_is_gone = File::from(pipe).write_all(&told.to_ne_bytes());
                }
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return 0,
        }
    }
}
