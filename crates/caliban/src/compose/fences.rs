//! The fences of the settings, and the policy that they are made by.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Instant,
};

use caliban_agent::{
    fence::{FenceReach, Fences},
    subagent::policy_in_worktree,
};
use caliban_core::{
    address::AddressPolicy,
    fence::{Profile, Sandbox},
};
use caliban_fence::{Hosts, ProgramFence};
use caliban_keeper::Variables;
use caliban_permissions::Policy;
use caliban_process::NO_ROOM;
use caliban_worktrees::AcceptedGit;

use super::own_program;
use crate::{
    report::{Failure, Result},
    settings::{Loaded, schema::FenceNetwork},
};

/// The fence of a program of the user's where there is no agent, only the settings: the setup command of a worktree, `fleet.notify`.
/// In a worktree of the agent's that is what it can change.
pub(crate) fn program_fence(
    loaded: &Loaded,
    env: &Variables,
    profile: Profile,
    worktree: Option<&Path>,
) -> Result<Option<ProgramFence>> {
    if profile == Profile::None {
        return Ok(None);
    }
    let fences = Arc::new(fences(loaded, env, own_program()?, true)?);
    let (policy, _) = policy(loaded, worktree);
    Ok(fences.program(profile, &policy, worktree.unwrap_or(&loaded.root)))
}

/// What commands run in. An agent in the background whose commands must be fenced does not begin where that cannot be done.
pub(super) fn fences(
    loaded: &Loaded,
    env: &Variables,
    helper: PathBuf,
    is_background: bool,
) -> Result<Fences> {
    let settings = &loaded.settings;
    let usual = if is_background { Sandbox::Required } else { Sandbox::Auto };
    let sandbox = settings.sandbox.unwrap_or(usual);
    if sandbox == Sandbox::Required
        && let Err(reason) = can_be_fenced(&helper)
    {
        if is_out_of_processes(&reason) {
            return Err(Failure::new(format!("there is no room for another process: {reason}"))
                .hint("raise the limit (ulimit -u, or pids.max of the control group), or let fewer agents run at once"));
        }
        return Err(Failure::new(format!("commands cannot be fenced on this machine: {reason}")).hint(
            "`caliban doctor` says more; with sandbox = \"auto\" (or \"off\") in the settings agents run without a fence, and \
             ask before nearly every command",
        ));
    }
    Ok(Fences {
        sandbox,
        network: match settings.fence.network {
            FenceNetwork::Off => FenceReach::Nothing,
            FenceNetwork::On => FenceReach::Everything,
            FenceNetwork::Domains => FenceReach::Hosts(
                Hosts::new(settings.fence.domains.clone()),
                AddressPolicy::with_private(settings.web.allow_private),
            ),
        },
        proxy: OnceLock::new(),
        show: settings.fence.show.clone(),
        hidden: vec![loaded.paths.data.clone(), loaded.paths.config.clone()],
        env: env.clone(),
        helper,
        gits: std::sync::Mutex::default(),
        found: std::sync::Mutex::default(),
        git_roots: caliban_rooted::Roots::default(),
        nested: caliban_agent::fence::Nested::default(),
        kept: std::sync::Mutex::default(),
        accepted_git: AcceptedGit::read(&loaded.paths.repo(&loaded.root)),
        limits: settings.fleet.tree_limits(),
    })
}

/// Whether commands can be fenced: tried again while there is only no room for the processes that it takes.
fn can_be_fenced(helper: &Path) -> std::result::Result<(), String> {
    let (limit, pause) = NO_ROOM;
    let began = Instant::now();
    loop {
        match caliban_fence::tried(helper) {
            Err(reason) if is_out_of_processes(&reason) && began.elapsed() < limit => {
                std::thread::sleep(pause)
            }
            found => return found,
        }
    }
}

/// Whether a refusal is EAGAIN: too many processes at the moment, which passes.
fn is_out_of_processes(reason: &str) -> bool {
    reason.contains("(os error 11)")
}

/// The settings' policy; in a worktree of its own an agent edits without a question. A line for each directory of the settings that it
/// leaves out.
pub(super) fn policy(loaded: &Loaded, worktree: Option<&Path>) -> (Policy, Vec<String>) {
    let mut policy = loaded.policy();
    if let Some(worktree) = worktree {
        policy = policy_in_worktree(policy, worktree);
    }
    let left_out = pin_added(&mut policy);
    (policy, left_out)
}

/// Finds the added directories before any command runs, and keeps only those. A link that an agent can make leads nowhere: neither a
/// command of this agent nor one of an earlier agent decides what is added.
fn pin_added(policy: &mut Policy) -> Vec<String> {
    let work = [&policy.root].into_iter().chain(&policy.worktree).chain(&policy.extra_dirs);
    let writable: Vec<PathBuf> = work.filter_map(|place| place.canonicalize().ok()).collect();
    let mut left_out = Vec::new();
    let roots = policy.roots.clone();
    policy.extra_dirs.retain(|place| {
        let pinned = roots.pin_through_links_outside(place, &writable);
        left_out.extend(pinned.as_ref().err().map(|error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => {
                    "it does not exist; a session that begins later uses it".to_owned()
                }
                _ => format!("{error} (hint: name the directory that it leads to)"),
            };
            format!("the added directory {} is left out: {why}", place.display())
        }));
        pinned.is_ok()
    });
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_passes_is_no_room_for_a_process() {
        let no_room = std::io::Error::from_raw_os_error(rustix::io::Errno::AGAIN.raw_os_error());
        assert!(is_out_of_processes(&format!("no second process: {no_room}")));
        let denied = std::io::Error::from_raw_os_error(rustix::io::Errno::PERM.raw_os_error());
        assert!(!is_out_of_processes(&format!("no namespace of its own: {denied}")));
    }
}
