//! The helper: the process that puts a fence up and starts one program in it.
//!
//! Three processes: the helper stays outside, so that its end is the program's end; the first process of the new process
//! namespace builds the fence from within and reaps ([`crate::init`]); its child becomes the program. What the program is
//! given as its environment is applied only when it is executed, so nothing of it (`LD_PRELOAD`) runs before the fence is up.
//!
//! The helper begins in one of two ways. A keeper has one thread and no environment: it forks ([`fence_child`]). Any other
//! caller starts our own program in a hidden mode, without an environment ([`fence_main`]). Both then do the same ([`run`]).
//! Nothing here may use a runtime: the fork of a keeper has what is left of the keeper's.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::fs::MetadataExt,
    },
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
};

use caliban_process::with_room;
use rustix::{
    pipe::PipeFlags,
    process::{Pid, Resource, Rlimit, Signal, WaitOptions},
    thread::UnshareFlags,
};

use crate::{
    NOT_FENCED, REFUSAL,
    fence::{FencedCommand, Network},
    init, loopback,
    sys::{self, Disposition},
};

const ORDER_BYTES: u64 = 64 << 20;
const REASON_BYTES: u64 = 4 << 10;
/// Signals that ask the program to end: whoever asks sends them to the program, too.
const ENDING: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];
/// The links of `/proc/self/task` in a process with one thread: itself, its parent, the thread.
const ONE_THREAD: u64 = 3;

/// How the words begin when something is not what was judged: whoever asked may judge again.
pub(crate) const CHANGED: &str = "changed since it was judged: ";

/// A step that failed, in words.
pub(crate) type StepError = String;

/// Runs the mode: call it first thing in `main`. The argument is the number of a descriptor that holds an [`FencedCommand`].
pub fn fence_main(arguments: &[OsString]) -> ExitCode {
    let parent = rustix::process::getppid();
    ExitCode::from(said(order(arguments).and_then(|order| run(&order, parent, None))))
}

/// A process that puts a fence up and then ends as the program does.
#[derive(Debug)]
pub struct FenceChild {
    /// The process.
    pub pid: Pid,
    changed: OwnedFd,
}

impl FenceChild {
    /// Whether it ended because something was not what had been judged: nothing has run. No fenced program can say so.
    pub fn is_changed(&self) -> bool {
        let mut byte = [0];
        rustix::io::ioctl_fionbio(&self.changed, true).is_ok()
            && rustix::io::read(&self.changed, &mut byte) == Ok(1)
    }
}

/// Carries an order out in a child of this process, which leads a group of its own and ends as the program does. The child
/// has these streams. Only for a process with one thread and an empty environment; with more threads it is an error.
pub fn fence_child(order: &FencedCommand, streams: [OwnedFd; 3]) -> io::Result<FenceChild> {
    #[expect(clippy::disallowed_methods, reason = "of the kernel's own files")]
    let threads = std::fs::metadata("/proc/self/task")?.nlink();
    if threads != ONE_THREAD {
        return Err(io::Error::other("a process with several threads cannot fork a fence"));
    }
    let parent = rustix::process::getpid();
    let (changed, tell_changed) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    if let Some(pid) = with_room(sys::fork)? {
        // The child does the same; whoever is first, the group is there when this returns.
        let _it_was_first = rustix::process::setpgid(Some(pid), Some(pid));
        return Ok(FenceChild { pid, changed });
    }
    // Never return in the child: the caller's stack belongs to the parent.
    let carried_out = catch_unwind(AssertUnwindSafe(|| {
        let begun = take_over(&streams).map_err(|error| format!("no streams: {error}"));
        said(begun.and_then(|()| run(order, Some(parent), Some(tell_changed))))
    }));
    sys::leave(carried_out.unwrap_or(NOT_FENCED))
}

/// What the start of a program would do: the streams, a group, a directory, and no handler of the parent's.
fn take_over([stdin, stdout, stderr]: &[OwnedFd; 3]) -> io::Result<()> {
    for signal in ENDING.into_iter().chain([Signal::CHILD]) {
        sys::dispose(signal, Disposition::Default);
    }
    rustix::process::setpgid(None, None)?;
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    Ok(rustix::process::chdir("/")?)
}

/// The exit code; a reason is said.
fn said(carried_out: Result<u8, StepError>) -> u8 {
    carried_out.unwrap_or_else(|reason| {
        let line = format!("{REFUSAL}: {}\n", reason.replace('\n', " "));
        // Nobody may be left to read it.
        let _best_effort = io::stderr().write_all(line.as_bytes());
        NOT_FENCED
    })
}

fn run(order: &FencedCommand, parent: Option<Pid>, tell_changed: Option<OwnedFd>) -> Result<u8, StepError> {
    let kept: Vec<RawFd> =
        order.descriptors.iter().copied().chain(tell_changed.as_ref().map(AsRawFd::as_raw_fd)).collect();
    close_others(&kept)?;
    // The first line that comes back is why the program did not start; its end without one says that it did.
    let (reason, tell_reason) = pipe()?;
    let (ended, tell_ended) = pipe()?;
    let listener = namespaces(&order.fence.network)?;
    limit_processes(order.fence.limits.pids)?;
    dies_with(parent)?;
    let Some(init) = with_room(sys::fork).map_err(|error| format!("no second process: {error}"))? else {
        drop((reason, ended, listener, tell_changed));
        return Ok(init::run(order, tell_reason, tell_ended));
    };
    drop((tell_reason, tell_ended));
    init::drop_capabilities()?;
    for signal in ENDING {
        sys::dispose(signal, Disposition::Ignored);
    }
    let mut words = String::new();
    let _until_it_runs = File::from(reason).take(REASON_BYTES).read_to_string(&mut words);
    if !words.is_empty() {
        if let Some(tell) = tell_changed.filter(|_| words.starts_with(CHANGED)) {
            let _keeper_is_gone = rustix::io::write(&tell, &[1]);
        }
        return Err(words);
    }
    drop(tell_changed);
    silence()?;
    let mut said = Vec::new();
    match (listener, &order.fence.network) {
        (Some(listener), Network::Proxy(socket)) => {
            said = loopback::forward(&listener, socket.path(), ended).unwrap_or_default();
        }
        _ => {
            let _nothing = File::from(ended).read_to_end(&mut said);
        }
    }
    match <[u8; 4]>::try_from(said.as_slice()) {
        Ok(status) => Ok(end_as(i32::from_ne_bytes(status))),
        // The first process of the namespace was killed, and with it everything.
        Err(_) => {
            let waited = rustix::process::waitpid(Some(init), WaitOptions::empty());
            let signal = waited.ok().flatten().and_then(|(_, status)| status.terminating_signal());
            Ok(end_by(signal.unwrap_or(Signal::KILL.as_raw())))
        }
    }
}

fn order(arguments: &[OsString]) -> Result<FencedCommand, StepError> {
    let number: RawFd = arguments
        .first()
        .and_then(|number| number.to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .ok_or("no order was given")?;
    let mut text = Vec::new();
    let file = File::open(format!("/proc/self/fd/{number}")).map_err(|error| format!("no order: {error}"))?;
    file.take(ORDER_BYTES).read_to_end(&mut text).map_err(|error| format!("no order: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| format!("the order is not valid: {error}"))
}

/// Closes every descriptor that the program must not get.
fn close_others(kept: &[RawFd]) -> Result<(), StepError> {
    let mut kept: Vec<RawFd> = kept.iter().copied().filter(|number| *number > 2).collect();
    kept.sort_unstable();
    let mut first = 3;
    for number in kept.into_iter().chain([RawFd::MAX]) {
        sys::close_range(first, number - 1).map_err(|error| format!("descriptors stay open: {error}"))?;
        first = number.saturating_add(1);
    }
    Ok(())
}

fn pipe() -> Result<(OwnedFd, OwnedFd), StepError> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| format!("no pipe: {error}"))
}

/// New namespaces but that of mounts, which the first process in them makes. Where there is a proxy, what listens for it.
fn namespaces(network: &Network) -> Result<Option<std::net::TcpListener>, StepError> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut flags = UnshareFlags::NEWUSER | UnshareFlags::NEWPID | UnshareFlags::NEWIPC;
    if *network != Network::On {
        flags |= UnshareFlags::NEWNET;
    }
    sys::unshare(flags).map_err(|error| format!("no namespaces of its own (unshare: {error})"))?;
    let write = |file: &str, text: String| {
        std::fs::write(format!("/proc/self/{file}"), text).map_err(|error| format!("{file}: {error}"))
    };
    // Each id as itself: files belong to the same user inside and outside.
    write("uid_map", format!("{user} {user} 1"))?;
    write("setgroups", "deny".to_owned())?;
    write("gid_map", format!("{group} {group} 1"))?;
    if *network == Network::On {
        return Ok(None);
    }
    loopback::up().map_err(|error| format!("no loopback: {error}"))?;
    match network {
        Network::Proxy(_) => loopback::listen().map(Some).map_err(|error| format!("no proxy: {error}")),
        Network::Off | Network::On => Ok(None),
    }
}

/// The kernel counts the processes of this user in this namespace only: those of the fence, and the two of ours. Root has no
/// such limit; the keeper's watch counts, too.
fn limit_processes(most: Option<u64>) -> Result<(), StepError> {
    let Some(most) = most else { return Ok(()) };
    let before = rustix::process::getrlimit(Resource::Nproc);
    let wanted = most.saturating_add(2);
    let most = Some(before.maximum.map_or(wanted, |hard| hard.min(wanted)));
    rustix::process::setrlimit(Resource::Nproc, Rlimit { current: most, maximum: most })
        .map_err(|error| format!("no limit of processes: {error}"))
}

/// Ends with the process that started us. The kernel forgets this wish when the user namespace changes.
pub(crate) fn dies_with(parent: Option<Pid>) -> Result<(), StepError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("no death signal: {error}"))?;
    if rustix::process::getppid() == parent { Ok(()) } else { Err("who asked for it is gone".to_owned()) }
}

/// Lets go of the program's streams: who reads them waits for their end.
pub(crate) fn silence() -> Result<(), StepError> {
    let words = |error: io::Error| format!("/dev/null: {error}");
    let null = File::options().read(true).write(true).open("/dev/null").map_err(words)?;
    for dup in [rustix::stdio::dup2_stdin, rustix::stdio::dup2_stdout, rustix::stdio::dup2_stderr] {
        dup(&null).map_err(|error| format!("/dev/null: {error}"))?;
    }
    Ok(())
}

/// Ends as the program did.
fn end_as(status: i32) -> u8 {
    match status {
        0..=0xff => u8::try_from(status).unwrap_or(NOT_FENCED),
        signal => end_by(signal >> 8),
    }
}

fn end_by(signal: i32) -> u8 {
    if let Some(signal) = Signal::from_named_raw(signal) {
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        let _a_core_is_left = rustix::process::setrlimit(Resource::Core, none);
        sys::dispose(signal, Disposition::Default);
        let _below_says_it = rustix::process::kill_process(rustix::process::getpid(), signal);
    }
    128u8.saturating_add(u8::try_from(signal & 0x7f).unwrap_or_default())
}
