//! `caliban worktrees …`: the arguments.

use clap::Subcommand;

/// What to do with worktrees.
#[derive(Debug, Clone, Subcommand)]
#[command(defer = true)]
#[command(after_help = "\
Examples:
  caliban worktrees list
  caliban worktrees sweep --dry-run
  caliban worktrees rescue list")]
pub(crate) enum WorktreesCommand {
    /// List the worktrees that Caliban made in this repo
    #[command(after_help = "\
Examples:
  caliban worktrees list
  caliban worktrees list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one: its branch, its base, what is not committed and what is not merged
    #[command(after_help = "\
Examples:
  caliban worktrees show 60b21822")]
    Show {
        /// The worktree's name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove worktrees; work that is on no branch is saved under a rescue ref first
    #[command(after_help = "\
Examples:
  caliban worktrees rm 60b21822")]
    Rm {
        /// The worktrees' names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Remove every worktree that no agent has; unsaved work is saved under a rescue ref first
    #[command(after_help = "\
Examples:
  caliban worktrees sweep --dry-run
  caliban worktrees sweep")]
    Sweep {
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
    },
    /// What was saved when worktrees were removed
    Rescue(RescueCommand),
}

/// What to do with saved work.
#[derive(Debug, Clone, Subcommand)]
#[command(defer = true)]
#[command(after_help = "\
Examples:
  caliban worktrees rescue list
  caliban worktrees rescue restore 60b21822")]
pub(crate) enum RescueCommand {
    /// List what was saved
    #[command(after_help = "\
Examples:
  caliban worktrees rescue list
  caliban worktrees rescue list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove saved work that is not wanted any more; says how to have it back
    #[command(after_help = "\
Examples:
  caliban worktrees rescue rm 60b21822
  caliban worktrees rescue rm 1 2           # by the numbers of the list")]
    Rm {
        /// The names under which it was saved, or the numbers that the list shows
        #[arg(required = true, value_name = "NAME|N")]
        names: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Bring saved work back: as a worktree with its branch, or its files alone
    #[command(after_help = "\
Examples:
  caliban worktrees rescue restore 60b21822
  caliban worktrees rescue restore 60b21822 --as second-try
  caliban worktrees rescue restore 60b21822 --to /tmp/files")]
    Restore {
        /// The name under which it was saved
        name: String,
        /// Put the files alone into this directory
        #[arg(long, value_name = "DIR", conflicts_with = "rename")]
        to: Option<std::path::PathBuf>,
        /// Give the worktree another name
        #[arg(long = "as", value_name = "NAME")]
        rename: Option<String>,
    },
}
