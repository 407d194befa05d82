//! The process tree on Linux: every orphan below us becomes our child, so what has no child left has no
//! descendant left.
//!
//! Only direct children are killed by id: such an id cannot be used again before we reap it. Deeper ones
//! become direct when their parents die. A whole group is killed at once, which no fork escapes.
//!
//! Who is of the [`Fleet`] is not looked at any further, and what is below it neither.

use std::{fs, io};

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
    let own = rustix::process::getpid();
    let fits =
        |children: Vec<Pid>| !children.is_empty() && children.into_iter().all(|child| fleet.has(child));
    // The kernel's list is fast and not exact while children come and go; a look at everybody is, for those who stay.
    // Twice, for those who fork on and on.
    children_file(own).is_none_or(fits) && (0..2).all(|_| fits(children_scan(own)))
}

/// TERM to everything, and CONT so that stopped processes get it.
pub(super) fn ask(_main: Pid, fleet: &Fleet) {
    let children = own_children(rustix::process::getpid(), fleet);
    for child in &children {
        signal_with_group(*child, Signal::TERM);
        signal_with_group(*child, Signal::CONT);
    }
    for deeper in descendants(fleet).into_iter().filter(|pid| !children.contains(pid)) {
        // The descriptor stays with this process; asking again afterwards who its parent is makes sure
        // that it was one of ours and not a stranger with an id that was used again.
        let Ok(process) = rustix::process::pidfd_open(deeper, PidfdFlags::empty()) else { continue };
        if descendants(fleet).contains(&deeper) {
            let _gone_already = rustix::process::pidfd_send_signal(&process, Signal::TERM);
            let _gone_already = rustix::process::pidfd_send_signal(&process, Signal::CONT);
        }
    }
}

/// One round of KILL.
pub(super) fn kill(_main: Pid, fleet: &Fleet) {
    for child in own_children(rustix::process::getpid(), fleet) {
        signal_with_group(child, Signal::KILL);
    }
}

/// Descendants that have not ended.
pub(super) fn alive(fleet: &Fleet) -> Vec<Pid> {
    descendants(fleet).into_iter().filter(|pid| stat(*pid).is_some_and(|stat| stat.state != b'Z')).collect()
}

/// What a process is called.
pub(super) fn name(pid: Pid) -> String {
    let name = fs::read(format!("/proc/{}/comm", pid.as_raw_nonzero())).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// A child's group holds only descendants of ours: groups do not cross sessions, and ours began with us.
/// Except our own group, which a child may join.
fn signal_with_group(child: Pid, signal: Signal) {
    if let Ok(group) = rustix::process::getpgid(Some(child))
        && group != rustix::process::getpgrp()
    {
        let _gone_already = rustix::process::kill_process_group(group, signal);
    }
    let _gone_already = rustix::process::kill_process(child, signal);
}

fn descendants(fleet: &Fleet) -> Vec<Pid> {
    let mut found = own_children(rustix::process::getpid(), fleet);
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        found.extend(own_children(pid, fleet));
        at += 1;
    }
    found
}

fn own_children(pid: Pid, fleet: &Fleet) -> Vec<Pid> {
    children(pid).into_iter().filter(|child| !fleet.has(*child)).collect()
}

fn children(pid: Pid) -> Vec<Pid> {
    children_file(pid).unwrap_or_else(|| children_scan(pid))
}

/// From `/proc/<pid>/task/*/children`; none when this kernel has no such file.
fn children_file(pid: Pid) -> Option<Vec<Pid>> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else {
        // Gone, or there is no /proc: a scan would find nothing either.
        return Some(Vec::new());
    };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(text) => found.extend(text.split_ascii_whitespace().filter_map(parse_pid)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && task.path().exists() => return None,
            // A thread that ended just now.
            Err(_) => {}
        }
    }
    Some(found)
}

fn children_scan(pid: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| parse_pid(entry.file_name().to_str()?))
        .filter(|other| stat(*other).is_some_and(|stat| stat.parent == Some(pid)))
        .collect()
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

pub(super) struct Stat {
    state: u8,
    parent: Option<Pid>,
    /// None: led by somebody whom this namespace of processes does not show. The system call answers 0 then,
    /// which a `Pid` cannot hold.
    pub(super) session: Option<Pid>,
}

pub(super) fn stat(pid: Pid) -> Option<Stat> {
    let text = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name may hold anything, a parenthesis too: what counts comes after the last one.
    let rest = &text[memchr::memrchr(b')', &text)? + 1..];
    let mut fields = rest.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let state = *fields.next()?.first()?;
    let mut next_pid = || Some(parse_pid(std::str::from_utf8(fields.next()?).ok()?));
    let (parent, _group, session) = (next_pid()?, next_pid()?, next_pid()?);
    Some(Stat { state, parent, session })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn both_ways_to_find_children_agree() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let own = rustix::process::getpid();
        assert!(children_file(own).is_none_or(|found| found.contains(&pid)));
        assert!(children_scan(own).contains(&pid));
        assert!(alive(&Fleet::of(&[])).contains(&pid));
        assert_eq!(name(pid), "sleep");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children_scan(own).contains(&pid));
    }
}
