//! The fence: what a program can do that nobody has looked at.
//!
//! [`Fence`] says what a fenced program finds. [`FencedCommand`] adds the program; a process of our own, forked by a keeper
//! ([`fence_child`]) or started in a hidden mode ([`fence_main`]), puts the fence up and starts the program in it. Every step
//! has to succeed: otherwise one line says which one did not, the exit code is [`NOT_FENCED`], and nothing was started.
//!
//! The fence is built of namespaces of its own (users, mounts, processes, network, IPC) with a root directory that holds
//! only what is shown, then Landlock, then a seccomp filter. Mounts are the fence; Landlock and seccomp hold what mounts
//! cannot (see docs/adr/0070-the-fence.md).
//!
//! It judges nothing: which command runs in which fence is decided in `caliban-permissions`.

#[cfg(target_os = "linux")]
mod helper;
#[cfg(target_os = "linux")]
mod init;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod loopback;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod own_process;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod system_calls;

mod around;
mod fence;
mod probe;
mod proxy;
mod remedy;
mod witness;

pub use around::{Around, Fenced, ProgramFence, Rejudge, Steps};
pub use caliban_rooted::ByteText;
pub use fence::{
    Access, Bind, Fence, FencedCommand, HeldPlace, Hold, Network, OwnSince, SYSTEM, SYSTEM_MASKS,
};
pub use helper::{FenceChild, fence_child, fence_main};
pub use loopback::PROXY_PORT;
pub use own_process::{
    KeyNames, drop_secrets, hide_environment, hide_kept_process, hide_memory, keep_secrets_back, take_secrets,
};
pub use probe::{probe, tried};
pub use proxy::{Hosts, Proxy, REFUSED};
pub use remedy::remedy;
pub use witness::{EmptyPlace, SeenPlaces, Witness};

/// The exit code when the fence could not be put up, or the program not started in it.
pub const NOT_FENCED: u8 = 125;

/// What is said before the reason.
pub const REFUSAL: &str = "caliban: the fence could not be put up, so nothing was run";
