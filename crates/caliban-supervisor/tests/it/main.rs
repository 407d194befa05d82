//! The fleet through its real programs: the daemon is `caliband`, the worker a fake one.

mod daemon;
mod faults;
mod fleet;
mod history;
mod kill;
mod life;
mod places;
mod protocol;
mod queue;
mod worktrees;
