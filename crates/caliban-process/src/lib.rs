//! Processes of this machine as `/proc` shows them, and waiting for them in time of our own.
//!
//! Owns what everybody who keeps, ends or judges processes has to know alike: who is who ([`stat`]), who is below whom
//! ([`children`]), who is everybody's ([`Keepers`]), how long is long ([`Patience`]). Looks only: it signals nobody. Where
//! there is no `/proc` there are no processes.

mod children;
mod handle;
mod keepers;
mod own_time;
mod proc_view;
mod room;
mod stat;

pub use children::{all, children, listed_children, scanned_children};
pub use handle::{is_ours, open};
pub use keepers::{DAEMON_LOCK, JOB_LOCK, Keeper, Keepers, SHIM_LOCK, holder_line, parse_holder};
pub use own_time::{ElapsedTime, Patience, awake_ms, boot_ms};
pub use proc_view::{PidNamespace, ProcView, hides_processes, view};
pub use room::{NO_ROOM, thread_with_room, with_room};
pub use stat::{Stat, boot_id, machine, read, stat, try_stat};
