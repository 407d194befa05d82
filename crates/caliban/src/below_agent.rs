//! A caliban that an agent's command starts gets nothing that the agent does not have (a11): no trust in a repo, no wider mode, no
//! rules or directories of its own choice, and no more than the policy that the agent has now. Nor does it end the daemon, or remove
//! what belongs to others.
//!
//! Who stands above is seen in the processes, not believed. An agent in the background writes down what it may do
//! (`rights.json`). One in the foreground does not: below it the user's settings hold, in the default mode. Below a team's member
//! they hold in the mode of members at most. What is started with
//! `--bg` is held to its parent's rights by the daemon.

use caliban_contract::{
    ancestry::{self, AgentProcess, Ancestry},
    member,
    records::{self, RIGHTS, Rights},
};
use caliban_core::mode::Mode;
use caliban_permissions::Policy;

use crate::{
    cli::{
        AgentFlags, Cli, Command,
        daemon::DaemonCommand,
        jobs::JobsCommand,
        sessions::SessionsCommand,
        worktrees::{RescueCommand, WorktreesCommand},
    },
    report::{Failure, Result},
};

/// Refuses a command line that asks for more than a process of an agent can have.
pub(crate) fn check(cli: &Cli) -> Result<()> {
    let wants = |most: Mode| match &cli.command {
        Some(Command::Trust(args)) if args.command.is_none() => Some("trust a repo"),
        // The daemon judges who asks it; one that does not answer gets a signal.
        Some(Command::Daemon(DaemonCommand::Stop | DaemonCommand::Restart)) => Some("end the daemon"),
        // These are done here, without a daemon that would judge who asks.
        Some(Command::Jobs(JobsCommand::Stop { .. })) => Some("end detached commands"),
        Some(Command::Worktrees(
            WorktreesCommand::Rm { .. }
            | WorktreesCommand::Sweep { dry_run: false }
            | WorktreesCommand::Rescue(RescueCommand::Rm { .. }),
        )) => Some("remove worktrees or saved work"),
        Some(Command::Sessions(SessionsCommand::Rm { .. })) => Some("remove sessions"),
        Some(Command::Acp(args)) => wider(&args.agent, most),
        None if cli.run.bg.is_none() => wider(&cli.agent, most),
        _ => None,
    };
    if wants(Mode::default()).is_none() {
        return Ok(());
    }
    let above = ancestry::own();
    // `cafleet` starts a caliban member with a mode.
    let most = if above == Ancestry::Member { member::MODE } else { Mode::default() };
    let Some(wants) = wants(most) else { return Ok(()) };
    match above.agent_in_words() {
        Some(who) => Err(Failure::usage(format!("{who} cannot {wants}")).hint("ask the user to do it")),
        None => Ok(()),
    }
}

/// What of these flags an agent's process cannot ask for.
fn wider(flags: &AgentFlags, most: Mode) -> Option<&'static str> {
    let is_wide = |mode: &Mode| mode.narrower(most) != *mode;
    if flags.permission_mode.as_ref().is_some_and(is_wide) {
        Some("choose a wider permission mode")
    } else if !flags.allow.is_empty() {
        Some("give rules that allow")
    } else if !flags.add_dir.is_empty() {
        Some("add directories")
    } else {
        None
    }
}

/// A policy that is no wider than that of the agent above, if there is one.
pub(crate) fn narrowed(mut own: Policy) -> Result<Policy> {
    let agent = match ancestry::own() {
        Ancestry::Person => return Ok(own),
        Ancestry::Member => {
            own.mode = own.mode.narrower(member::MODE);
            return Ok(own);
        }
        Ancestry::Agents(agents) => agents.into_iter().next(),
        // Whoever cannot be seen is never taken for a person.
        Ancestry::Unknown => None,
    };
    let Some(agent) = agent else {
        own.mode = own.mode.narrower(Mode::default());
        return Ok(own);
    };
    // The agent itself: its spec says what it may do.
    if agent.which == AgentProcess::Worker {
        return Ok(own);
    }
    let rights = records::read::<Rights>(&agent.dir, RIGHTS).filter(|rights| rights.nonce == agent.nonce);
    let parent = rights.and_then(|rights| serde_json::from_value::<Policy>(rights.policy).ok());
    let id = agent.dir.file_name().unwrap_or_default().to_string_lossy();
    let parent = parent.ok_or_else(|| {
        Failure::new(format!("nobody can tell what agent {id} may hand over"))
            .hint("start it with --bg, or ask the user to do it")
    })?;
    Ok(caliban_permissions::inherit(&parent, own))
}
