//! The system calls that a fenced program does not have.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use crate::helper::StepError;

/// Refused with "operation not permitted", whatever their arguments are.
const REFUSED: &[libc::c_long] = &[
    // Other processes' memory and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_process_madvise,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // The kernel's key rings belong to the user, not to a namespace.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Parts of the kernel with a history.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_vmsplice,
    libc::SYS_fanotify_init,
    // Other views of the file system.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_settimeofday,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];
/// Of some processors only.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] =
    &[libc::SYS_kexec_file_load, libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];
/// Answered as if the kernel did not have them, so that programs take the older call, which the filter can look into.
const ABSENT: &[libc::c_long] =
    &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_clone3];
/// Requests of ioctl that inject input into a terminal (TIOCSTI, TIOCLINUX) or change its line discipline.
const TERMINAL: [u64; 3] = [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD];
/// Sockets that a program may have.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
const NAMESPACES: [i32; 8] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    0x80,
];
/// The second numbering of the same calls.
#[cfg(target_arch = "x86_64")]
const X32: Option<libc::c_long> = Some(0x4000_0000);
#[cfg(not(target_arch = "x86_64"))]
const X32: Option<libc::c_long> = None;

/// The rules of a filter: none for a call means always.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

pub(crate) fn enforce() -> Result<(), StepError> {
    let words = |error: &dyn std::fmt::Display| format!("no seccomp: {error}");
    for program in programs().map_err(|error| words(&error))? {
        seccompiler::apply_filter(&program).map_err(|error| words(&error))?;
    }
    Ok(())
}

fn programs() -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let mut refused: Rules = REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, Vec::new())).collect();
    let dword = |argument: u8, operator: SeccompCmpOp, value: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    };
    let unsigned = |number: i32| u64::from(number.unsigned_abs());
    let namespaces = NAMESPACES.iter().map(|flag| {
        SeccompRule::new(vec![dword(0, SeccompCmpOp::MaskedEq(unsigned(*flag)), unsigned(*flag))?])
    });
    refused.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>()?);
    let terminal = TERMINAL.iter().map(|order| SeccompRule::new(vec![dword(1, SeccompCmpOp::Eq, *order)?]));
    refused.insert(libc::SYS_ioctl, terminal.collect::<Result<_, _>>()?);
    // Limits of another process.
    let others = SeccompRule::new(vec![dword(0, SeccompCmpOp::Ne, 0)?])?;
    refused.insert(libc::SYS_prlimit64, vec![others]);
    // Whoever hides its memory hides what it takes. `gpg-agent` and `ssh-agent` try, and go on without.
    let hides =
        vec![dword(0, SeccompCmpOp::Eq, unsigned(libc::PR_SET_DUMPABLE))?, dword(1, SeccompCmpOp::Eq, 0)?];
    refused.insert(libc::SYS_prctl, vec![SeccompRule::new(hides)?]);
    let families = FAMILIES.iter().map(|family| dword(0, SeccompCmpOp::Ne, unsigned(*family)));
    let families = SeccompRule::new(families.collect::<Result<_, _>>()?)?;
    refused.insert(libc::SYS_socket, vec![families.clone()]);
    refused.insert(libc::SYS_socketpair, vec![families]);
    let absent: Rules = ABSENT.iter().map(|call| (*call, Vec::new())).collect();
    Ok([program(refused, libc::EPERM)?, program(absent, libc::ENOSYS)?])
}

fn program(mut rules: Rules, error: i32) -> Result<BpfProgram, seccompiler::BackendError> {
    if let Some(bit) = X32 {
        let again: Rules = rules.iter().map(|(call, rules)| (call | bit, rules.clone())).collect();
        rules.extend(again);
    }
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let error = SeccompAction::Errno(error.unsigned_abs());
    // A program of another architecture is killed.
    SeccompFilter::new(rules, SeccompAction::Allow, error, architecture)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_are_accepted_by_the_compiler() {
        let [refused, absent] = programs().unwrap();
        assert!(refused.len() > REFUSED.len() && absent.len() >= 2 * ABSENT.len());
    }
}
