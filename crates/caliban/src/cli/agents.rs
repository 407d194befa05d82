//! `caliban agents …`: the arguments.

use clap::Subcommand;

use super::fleet::{
    ApprovalsArgs, ApproveArgs, AttachArgs, DenyArgs, DiffArgs, KillArgs, ListArgs, LogsArgs, MergeArgs,
    RequeueArgs, RespawnArgs, ResumeArgs, RmArgs, SendArgs, SpawnArgs, WaitArgs,
};

/// What to do about background agents.
#[derive(Debug, Clone, Subcommand)]
#[command(defer = true)]
#[command(after_help = "\
Examples:
  caliban agents                            # on a terminal: all agents on one screen
  caliban agents list
  caliban agents spawn --prompt \"audit all SQL queries\" --label sql
  caliban agents diff sql
  caliban agents merge sql")]
pub(crate) enum AgentsCommand {
    /// Start an agent in the background and print its id
    Spawn(Box<SpawnArgs>),
    /// Show all agents on one screen: open, stop and resume them (`caliban agents` on a terminal)
    #[command(after_help = "\
Examples:
  caliban agents view")]
    View,
    /// List all agents of this repo: state, what each is doing or waits for, what it has spent
    List(ListArgs),
    /// Watch an agent live and talk to it; Ctrl+D leaves it running
    Attach(AttachArgs),
    /// Print what an agent did
    Logs(LogsArgs),
    /// Say something to an agent
    Send(SendArgs),
    /// Wait until agents have ended; the exit code tells how
    Wait(WaitArgs),
    /// End agents with everything that they started
    #[command(visible_alias = "stop")]
    Kill(KillArgs),
    /// Start an agent again from its original request, with a new id
    Respawn(RespawnArgs),
    /// Let an ended agent go on in its conversation, with the same id
    Resume(ResumeArgs),
    /// Change the priority or the time of an agent that has not begun
    Requeue(RequeueArgs),
    /// Remove stopped agents and their worktrees; unsaved work is saved under a rescue ref first
    Rm(RmArgs),
    /// List what agents ask for; `caliban approve` and `caliban deny` answer
    Approvals(ApprovalsArgs),
    /// Allow what an agent asks for
    Approve(ApproveArgs),
    /// Refuse what an agent asks for
    Deny(DenyArgs),
    /// Show what an agent changed, committed or not
    Diff(DiffArgs),
    /// Merge what an agent did; conflicts are reported before anything changes
    Merge(MergeArgs),
    /// List the kinds of agents that this repo and you define
    #[command(after_help = "\
Examples:
  caliban agents types
  caliban --bg \"review the last commit\" --agent reviewer")]
    Types {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
