//! The fleet through its real programs: the daemon is `caliband`, the worker a fake one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod adopt;
mod again;
mod below;
mod clock;
mod crowd;
mod daemon;
mod doubt;
mod faults;
mod fleet;
mod full_disk;
mod history;
mod inherited;
mod kill;
mod late;
mod life;
mod lost;
mod memory;
mod notify;
mod passing;
mod places;
mod protocol;
mod queue;
mod recover;
mod respawn;
mod sleepers;
mod time;
mod unreadable;
mod upgraded;
mod worktrees;
