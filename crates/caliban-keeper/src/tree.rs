//! The tree of processes that a keeper answers for, and how it ends.
//!
//! The keeper is a session leader and a child subreaper. Whatever the tree does (`setsid`, double fork, ignoring TERM),
//! its orphans become the keeper's children, so a keeper without children has no descendants. On top of that comes the
//! control group of a run, where there is one: its members count even if they are not below the keeper.
//!
//! KILL goes to direct children only: the pid of a child cannot be reused before the keeper reaps it. Deeper processes
//! become direct children when their parents die.
//!
//! Daemons and shims below the keeper do not belong to the tree ([`Keepers`]). They stay when the keeper exits, and so
//! does what is below them.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use caliban_process::{ElapsedTime, Keepers, Patience, children, listed_children, scanned_children, stat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus};
use tokio::signal::unix::{self, SignalKind, signal};

use crate::group::Group;
use crate::reaper::KILL_LIMIT;

/// The longest pause between two rounds of KILL.
const KILL_PAUSE: Duration = Duration::from_millis(20);

/// This process, ready to keep a tree. Must exist before the tree's first process is started.
#[derive(Debug)]
pub struct Subreaper {
    child: unix::Signal,
}

impl Subreaper {
    /// Leads a session and adopts orphans from now on. Needs a runtime.
    pub fn new() -> io::Result<Self> {
        // Fails when this process leads a group; then it already has a session of its own.
        let _leader_already = rustix::process::setsid();
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(Self { child: signal(SignalKind::child())? })
    }

    /// Keeps the tree of this child. `spared` are the daemons and shims that do not belong to it.
    pub fn keep(self, main: Pid, spared: Option<Keepers>, group: Option<Group>) -> Tree {
        Tree { child: self.child, main, ended: None, childless: false, forced: false, spared, group }
    }
}

/// A kept tree.
#[derive(Debug)]
pub struct Tree {
    child: unix::Signal,
    main: Pid,
    ended: Option<WaitStatus>,
    /// Whether the kernel said that we have no child.
    childless: bool,
    /// Whether our KILL met a main process that had not ended.
    forced: bool,
    spared: Option<Keepers>,
    group: Option<Group>,
}

impl Tree {
    /// How the main process ended; none if it has not.
    pub fn status(&self) -> Option<WaitStatus> {
        self.ended
    }

    /// Whether the main process got a KILL from us, so that nobody else is blamed for it.
    pub fn was_forced(&self) -> bool {
        self.forced
    }

    /// Waits for the end of the main process. Cancel safe.
    pub async fn main_ended(&mut self) {
        loop {
            self.reap();
            if self.ended.is_some() {
                return;
            }
            self.child.recv().await;
        }
    }

    /// Waits until the tree is empty; false when it is not at the end of `patience`. Cancel safe.
    pub async fn gone_within(&mut self, patience: &mut Patience) -> bool {
        loop {
            self.reap();
            if self.is_gone() {
                return true;
            }
            tokio::select! {
                biased;
                _ = self.child.recv() => {}
                () = patience.over() => {
                    self.reap();
                    return self.is_gone();
                }
            }
        }
    }

    /// TERM, a grace period, then KILL until the tree is empty.
    pub async fn end(&mut self, grace: Duration) {
        self.terminate();
        if !self.gone_within(&mut Patience::new(grace)).await {
            self.kill().await;
        }
    }

    /// TERM to every member, and CONT so that stopped processes get it.
    pub fn terminate(&self) {
        for pid in self.descendants() {
            let Some(id) = Pid::from_raw(pid) else { continue };
            // The descriptor stays with this process. Checking afterwards that it is below us makes sure that the pid
            // was not reused by a stranger in between.
            let Ok(process) = rustix::process::pidfd_open(id, PidfdFlags::empty()) else { continue };
            if is_below(pid, own_pid()) {
                let _gone_already = rustix::process::pidfd_send_signal(&process, Signal::TERM);
                let _gone_already = rustix::process::pidfd_send_signal(&process, Signal::CONT);
            }
        }
    }

    /// KILL until the tree is empty. Processes that no signal can end (stuck in the kernel) outlive this.
    pub async fn kill(&mut self) {
        let mut spent = ElapsedTime::new();
        let mut pause = Duration::from_millis(1);
        self.forced = self.ended.is_none();
        while spent.so_far() < KILL_LIMIT {
            self.kill_children();
            if let Some(group) = &self.group {
                group.kill(|pid| self.is_spared(pid));
            }
            self.reap();
            if self.is_gone() {
                return;
            }
            // Each end wakes us at once: a chain that forks and exits is followed as fast as it runs.
            let _woken_or_not = tokio::time::timeout(pause, self.child.recv()).await;
            pause = (pause * 2).min(KILL_PAUSE);
        }
    }

    /// Living members; none when the tree is empty.
    pub fn left(&self) -> BTreeSet<i32> {
        if self.is_gone() {
            return BTreeSet::new();
        }
        let grouped = self.group.as_ref().map(Group::members).unwrap_or_default();
        let grouped = grouped.into_iter().filter(|pid| !self.is_spared(*pid));
        let all = self.descendants().into_iter().chain(grouped);
        all.filter(|pid| stat(*pid).is_some_and(|stat| !stat.is_over())).collect()
    }

    fn reap(&mut self) {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.main => self.ended = Some(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                none => {
                    self.childless = none.is_err();
                    return;
                }
            }
        }
    }

    fn is_gone(&self) -> bool {
        let ungrouped = |group: &Group| group.members().into_iter().all(|pid| self.is_spared(pid));
        (self.childless || self.only_spared()) && self.group.as_ref().is_none_or(ungrouped)
    }

    /// Whether all children are spared. Asked when the kernel says that there are some: if none can be seen, one hides.
    fn only_spared(&self) -> bool {
        let own = own_pid();
        let fits = |found: Vec<i32>| !found.is_empty() && found.into_iter().all(|pid| self.is_spared(pid));
        // The kernel's list is fast, but not exact while children come and go. A scan of all processes is exact for
        // those that stay; twice, because of those that keep forking.
        listed_children(own).is_none_or(fits) && (0..2).all(|_| fits(scanned_children(own)))
    }

    /// One round of KILL: each child with its group, which no fork escapes.
    fn kill_children(&self) {
        let own_group = stat(own_pid()).map(|stat| stat.group);
        for child in self.children_of(own_pid()) {
            // The group of a child holds only descendants of ours: groups do not cross sessions, and ours began with
            // us. The exception is our own group, which a child may join.
            let group = stat(child).map(|stat| stat.group);
            if let Some(group) = group.filter(|_| own_group.is_some() && group != own_group)
                && let Some(group) = Pid::from_raw(group)
            {
                let _gone_already = rustix::process::kill_process_group(group, Signal::KILL);
            }
            if let Some(child) = Pid::from_raw(child) {
                let _gone_already = rustix::process::kill_process(child, Signal::KILL);
            }
        }
    }

    fn descendants(&self) -> Vec<i32> {
        let mut found = self.children_of(own_pid());
        let mut at = 0;
        while let Some(pid) = found.get(at).copied() {
            found.extend(self.children_of(pid));
            at += 1;
        }
        found
    }

    fn children_of(&self, pid: i32) -> Vec<i32> {
        children(pid).into_iter().filter(|child| !self.is_spared(*child)).collect()
    }

    fn is_spared(&self, pid: i32) -> bool {
        self.spared.as_ref().is_some_and(|spared| spared.who(pid).is_some())
    }
}

pub(crate) fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn is_below(pid: i32, top: i32) -> bool {
    let mut at = pid;
    while let Some(found) = stat(at) {
        if found.parent == top {
            return true;
        }
        at = found.parent;
    }
    false
}
