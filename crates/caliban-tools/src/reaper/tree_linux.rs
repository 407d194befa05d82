//! The process tree on Linux: every orphan below us becomes our child, so what has no child left has no
//! descendant left.
//!
//! Only direct children are killed by id: such an id cannot be used again before we reap it. Deeper ones
//! become direct when their parents die. A whole group is killed at once, which no fork escapes.
//!
//! Who is of the [`Fleet`] is not looked at any further, and what is below it neither.

use std::{fs, io};

use caliban_process::{children, listed_children, scanned_children, stat};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::fleet::Fleet;

/// Orphans of our descendants become our children.
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// With a subreaper there is nothing outside of our children.
pub(super) fn group_left(_main: Pid) -> bool {
    false
}

/// Whether all children that are left are of the fleet. Asked when the kernel says that there are some: if none can be
/// seen, there is one who hides.
pub(super) fn only_fleet(fleet: &Fleet) -> bool {
    let own = own_pid();
    let fits =
        |children: Vec<i32>| !children.is_empty() && children.into_iter().all(|child| fleet.has(child));
    // The kernel's list is fast and not exact while children come and go; a look at everybody is, for those who stay.
    // Twice, for those who fork on and on.
    listed_children(own).is_none_or(fits) && (0..2).all(|_| fits(scanned_children(own)))
}

/// TERM to everything, and CONT so that stopped processes get it.
pub(super) fn ask(_main: Pid, fleet: &Fleet) {
    let children = own_children(own_pid(), fleet);
    for child in &children {
        signal_with_group(*child, Signal::TERM);
        signal_with_group(*child, Signal::CONT);
    }
    for deeper in descendants(fleet).into_iter().filter(|pid| !children.contains(pid)) {
        // The descriptor stays with this process; asking again afterwards who its parent is makes sure
        // that it was one of ours and not a stranger with an id that was used again.
        let Some(id) = Pid::from_raw(deeper) else { continue };
        let Ok(process) = rustix::process::pidfd_open(id, PidfdFlags::empty()) else { continue };
        if descendants(fleet).contains(&deeper) {
            let _gone_already = rustix::process::pidfd_send_signal(&process, Signal::TERM);
            let _gone_already = rustix::process::pidfd_send_signal(&process, Signal::CONT);
        }
    }
}

/// One round of KILL.
pub(super) fn kill(_main: Pid, fleet: &Fleet) {
    for child in own_children(own_pid(), fleet) {
        signal_with_group(child, Signal::KILL);
    }
}

/// Descendants that have not ended.
pub(super) fn alive(fleet: &Fleet) -> Vec<i32> {
    descendants(fleet).into_iter().filter(|pid| stat(*pid).is_some_and(|stat| !stat.is_over())).collect()
}

/// What a process is called.
pub(super) fn name(pid: i32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// A child's group holds only descendants of ours: groups do not cross sessions, and ours began with us.
/// Except our own group, which a child may join.
fn signal_with_group(child: i32, signal: Signal) {
    let Some(id) = Pid::from_raw(child) else { return };
    let group = |pid| stat(pid).and_then(|stat| Pid::from_raw(stat.group));
    if let (Some(group), Some(own)) = (group(child), group(own_pid()))
        && group != own
    {
        let _gone_already = rustix::process::kill_process_group(group, signal);
    }
    let _gone_already = rustix::process::kill_process(id, signal);
}

fn descendants(fleet: &Fleet) -> Vec<i32> {
    let mut found = own_children(own_pid(), fleet);
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        found.extend(own_children(pid, fleet));
        at += 1;
    }
    found
}

fn own_children(pid: i32, fleet: &Fleet) -> Vec<i32> {
    children(pid).into_iter().filter(|child| !fleet.has(*child)).collect()
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}
