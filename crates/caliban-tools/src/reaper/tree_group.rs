//! The process tree where there is no subreaper: the command's process group stands in for it. A process
//! that leaves the group escapes; so does a daemon, which is not the command's anyway.

use std::io;

use rustix::process::{Pid, Signal};

use super::fleet::Fleet;

/// There is no such thing here.
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

/// Whether anything is left in the command's group.
pub(super) fn group_left(main: Pid) -> bool {
    rustix::process::test_kill_process_group(main).is_ok()
}

/// Not known; none is in the group.
pub(super) fn only_fleet(_fleet: &Fleet) -> bool {
    false
}

/// TERM to the group, and CONT so that stopped processes get it.
pub(super) fn ask(main: Pid, _fleet: &Fleet) {
    let _gone_already = rustix::process::kill_process_group(main, Signal::TERM);
    let _gone_already = rustix::process::kill_process_group(main, Signal::CONT);
}

/// One round of KILL.
pub(super) fn kill(main: Pid, _fleet: &Fleet) {
    let _gone_already = rustix::process::kill_process_group(main, Signal::KILL);
}

/// Not known.
pub(super) fn alive(_fleet: &Fleet) -> Vec<i32> {
    Vec::new()
}

/// Not known.
pub(super) fn name(_pid: Pid) -> String {
    String::new()
}
