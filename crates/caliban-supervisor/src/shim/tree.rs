//! The processes below a shim. Every orphan becomes our child, so nothing that the worker starts gets away.
//!
//! Only direct children are killed by id: such an id cannot be used again before we reap it. Deeper ones become
//! direct when their parents die.
//!
//! Not of our family are a daemon that the worker had to start, of whatever repo, and the agents which that daemon
//! started: they are everybody's ([`Keepers`]). They stay when we leave, and whoever is above us, or init, gets them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use caliban_process::{Keeper, Keepers, children, scanned_children, stat};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::args::ShimArgs;

/// Who is below us and belongs to the run.
pub(super) struct Family {
    own_dir: PathBuf,
    /// None when nothing can be said: then nobody is spared.
    keepers: Option<Keepers>,
}

impl Family {
    pub(super) fn new(args: &ShimArgs) -> Self {
        let own_dir = fs::canonicalize(&args.dir).unwrap_or_else(|_| args.dir.clone());
        // `<base>/agents/<id>`.
        let base = own_dir.ancestors().nth(2);
        Self { keepers: base.and_then(Keepers::beside), own_dir }
    }

    /// Whether all children that are left are everybody's. Asked only when there are children: without any
    /// there is nobody below us.
    pub(super) fn only_others(&self) -> bool {
        // The kernel's list of children is not exact while they come and go; a look at everybody is, for
        // those who stay. Twice, for those who fork on and on.
        (0..2).all(|_| scanned_children(own_pid()).into_iter().all(|child| self.is_everybodys(child)))
    }

    /// TERM to everybody, and CONT so that stopped processes get it.
    pub(super) fn ask(&self) {
        let own = own_pid();
        for pid in self.members() {
            let Some(id) = Pid::from_raw(pid) else { continue };
            // The descriptor stays with this process; asking again afterwards whether it is below us makes
            // sure that it is not a stranger with an id that was used again.
            let Ok(process) = rustix::process::pidfd_open(id, PidfdFlags::empty()) else { continue };
            if is_below(pid, own) {
                let _gone_already = rustix::process::pidfd_send_signal(&process, Signal::TERM);
                let _gone_already = rustix::process::pidfd_send_signal(&process, Signal::CONT);
            }
        }
    }

    /// One round of KILL: each direct child, with its group, which no fork escapes.
    pub(super) fn kill(&self) {
        let own = own_pid();
        let own_group = stat(own).map(|stat| stat.group);
        let members: BTreeSet<i32> = self.members().into_iter().collect();
        for (pid, stat) in members.iter().filter_map(|pid| Some((*pid, stat(*pid)?))) {
            let Some(id) = Pid::from_raw(pid).filter(|_| stat.parent == own) else { continue };
            // A child's group holds only descendants of ours: groups do not cross sessions, and ours began
            // with us. Except our own group, which a child may join or never have left.
            if let Some(group) = Pid::from_raw(stat.group)
                && own_group.is_some_and(|own| own != stat.group)
            {
                let _gone_already = rustix::process::kill_process_group(group, Signal::KILL);
            }
            let _gone_already = rustix::process::kill_process(id, Signal::KILL);
        }
    }

    /// Living descendants, without those who are everybody's and what is below these.
    pub(super) fn members(&self) -> Vec<i32> {
        let mut found: Vec<i32> = self.own_children(own_pid());
        let mut at = 0;
        while let Some(pid) = found.get(at).copied() {
            found.extend(self.own_children(pid));
            at += 1;
        }
        found.retain(|pid| stat(*pid).is_some_and(|stat| !stat.is_over()));
        found
    }

    fn own_children(&self, pid: i32) -> Vec<i32> {
        children(pid).into_iter().filter(|child| !self.is_everybodys(*child)).collect()
    }

    /// Whether it is a daemon or another agent's shim.
    pub(super) fn is_everybodys(&self, pid: i32) -> bool {
        match self.keepers.as_ref().and_then(|keepers| keepers.who(pid)) {
            Some(Keeper::Daemon) => true,
            Some(Keeper::Shim(dir)) => dir != self.own_dir,
            None => false,
        }
    }
}

fn own_pid() -> i32 {
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
