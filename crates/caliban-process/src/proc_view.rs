//! How much of the machine `/proc` shows: all of its processes, or those of one pid namespace.
//!
//! A process in a pid namespace (a container, a sandbox, `unshare`) sees no process outside of it, and nothing inside says who
//! made the namespace. So who walks up its parents there comes to an end that proves nothing about what stands above.
//! The number in `/proc/self` counts, not `getpid`: with the `/proc` of an outer namespace the walk goes on out there.

use std::path::Path;

use crate::{boot_id, read, stat};

/// The kernel's fixed number of the first pid namespace.
const FIRST: &str = "pid:[4026531836]";

/// What `/proc` shows to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcView {
    /// Every process of the machine.
    Whole,
    /// The processes of one pid namespace.
    Within(PidNamespace),
    /// It is no `/proc`, or one of a namespace that cannot be told.
    Unclear,
}

/// A pid namespace. No other one is equal to it, before or after a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PidNamespace(String);

impl PidNamespace {
    /// As text that can be stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What `/proc` shows, and which of the processes that it shows we are.
#[must_use]
pub fn view() -> (ProcView, Option<i32>) {
    let is_proc =
        rustix::fs::statfs("/proc").is_ok_and(|fs| fs.f_type as u64 == rustix::fs::PROC_SUPER_MAGIC as u64);
    let ids = match read(Path::new("/proc/self/status")) {
        Ok(Some(status)) if is_proc => ids(&String::from_utf8_lossy(&status)),
        _ => Vec::new(),
    };
    // Our ids, from the namespace that this `/proc` is of to our own.
    let first_of_it = match &ids[..] {
        [] => return (ProcView::Unclear, None),
        _ if shows_kernel_threads() => return (ProcView::Whole, ids.first().copied()),
        [_] => "/proc/self/ns/pid",
        _ => "/proc/1/ns/pid",
    };
    let link = std::fs::read_link(first_of_it).ok();
    let view = match link.as_deref().and_then(Path::to_str) {
        Some(FIRST) => ProcView::Whole,
        Some(name) => match boot_id() {
            // Numbers of namespaces are used again. The first process of one is its own.
            Ok(boot) => {
                let born = stat(1).map(|first| first.start_time).unwrap_or_default();
                ProcView::Within(PidNamespace(format!("{boot}/{name}/{born}")))
            }
            Err(_) => ProcView::Unclear,
        },
        None => ProcView::Unclear,
    };
    (view, ids.first().copied())
}

/// Whether `/proc` shows us only the processes that we may look into (`hidepid`). A process that hides its memory could then not
/// be seen at all, not even by who keeps it.
#[must_use]
pub fn hides_processes() -> bool {
    let mounts = read(Path::new("/proc/self/mountinfo")).ok().flatten().unwrap_or_default();
    is_hiding(&String::from_utf8_lossy(&mounts))
}

fn is_hiding(mounts: &str) -> bool {
    let on_proc = |line: &&str| line.split(' ').nth(4) == Some("/proc");
    // The last one mounted is the one on top.
    let last = mounts.lines().rfind(on_proc).unwrap_or_default();
    let value = last.split([' ', ',']).find_map(|option| option.strip_prefix("hidepid="));
    value.is_some_and(|value| !["0", "off"].contains(&value))
}

/// Kernel threads are in the first namespace only. The second process of a machine is the one that starts them.
fn shows_kernel_threads() -> bool {
    /// `PF_KTHREAD`, which no program can set for itself.
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let Ok(Some(text)) = read(Path::new("/proc/2/stat")) else { return false };
    let text = String::from_utf8_lossy(&text);
    // The name in parentheses may hold anything. The flags are the seventh word after it.
    let flags = text.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(6));
    flags.and_then(|flags| flags.parse::<u64>().ok()).is_some_and(|flags| flags & KERNEL_THREAD != 0)
}

fn ids(status: &str) -> Vec<i32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a12_a_proc_that_hides_processes_is_known() {
        let mount = |options: &str| {
            format!("9 8 0:1 / / rw - ext4 x rw\n22 28 0:21 / /proc rw,nosuid - proc proc rw{options}\n")
        };
        for hiding in [",hidepid=2", ",gid=4,hidepid=invisible", ",hidepid=ptraceable,subset=pid"] {
            assert!(is_hiding(&mount(hiding)), "{hiding}");
        }
        for open in ["", ",hidepid=0", ",hidepid=off", ",gid=4"] {
            assert!(!is_hiding(&mount(open)), "{open}");
        }
    }

    #[test]
    fn a11_our_number_is_the_one_of_this_proc() {
        assert_eq!(ids("Name:\tx\nNSpid:\t71\t1\nKthread:\t0\n"), [71, 1]);
        assert_eq!(ids("Name:\tx\n"), Vec::<i32>::new());
        let (view, own) = view();
        assert_ne!(view, ProcView::Unclear);
        assert_eq!(own, i32::try_from(std::process::id()).ok());
    }
}
