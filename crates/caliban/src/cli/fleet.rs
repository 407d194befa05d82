//! The arguments that `caliban agents …`, its top-level shorthands and `--bg` share.

use std::{
    num::{NonZeroU32, NonZeroU64},
    path::PathBuf,
    time::Duration,
};

use caliban_contract::local_time;
use caliban_core::{calendar, kept_rules::KeepFor, priority::Priority, recurrence::Recurrence};
use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::run::{AgentFlags, above_zero};
use crate::settings::values::Usd;

/// What the flags of a background agent stand below.
pub(super) const HEADING: &str = "Background agent";

// What is said about a background agent beside how it is set up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = HEADING)]
pub(crate) struct TaskFlags {
    /// A name for people, shown in lists and usable instead of the id
    #[arg(long, value_name = "NAME")]
    pub label: Option<String>,
    /// Where it works: a git worktree of its own, or your directory
    #[arg(long, value_name = "WHERE", value_enum)]
    pub isolation: Option<IsolationArg>,
    /// What its worktree starts from: head, fresh, or any revision
    #[arg(long, value_name = "REV")]
    pub base: Option<String>,
    /// Check out only this directory; may be given again
    #[arg(long, value_name = "DIR")]
    pub sparse: Vec<String>,
    /// Link this directory of the repo into the worktree instead of checking it out; may be given again
    #[arg(long, value_name = "DIR")]
    pub symlink: Vec<String>,
    /// The only tools that it has, separated by commas; may be given again
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    pub tools: Vec<String>,
    /// Its kind: one of `caliban agents types`
    #[arg(long = "agent", value_name = "TYPE")]
    pub agent_type: Option<String>,
    /// Stay for further messages when the task is done
    #[arg(long)]
    pub interactive: bool,
    /// Give it a mailbox in this broker session (see `cafleet session list`); needs --interactive to wait for mail
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Start when this agent has ended done or, with --interactive, is idle; may be given again
    #[arg(long, value_name = "ID")]
    pub after: Vec<String>,
    /// Who comes first, when agents wait for a place or for a rate limit: low, normal or high
    #[arg(long, value_name = "PRIORITY", value_parser = priorities())]
    pub priority: Option<Priority>,
    /// Start at this time: 07:00, tomorrow 07:00, 2026-11-18 07:00 or +2h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub at: Option<StartTime>,
    /// Start a new one each time: 6h, 07:00, "mon-fri 07:00,19:00"; see `caliban schedule`
    #[arg(long, value_name = "WHEN", value_parser = recurrence, conflicts_with_all = ["at", "after"])]
    pub every: Option<Recurrence>,
    /// With --every: start a new one also when the last one has not ended
    #[arg(long, requires = "every")]
    pub overlap: bool,
    /// End it this long after its start, whatever it does: seconds, or a number with s, m or h
    #[arg(long, value_name = "TIME", value_parser = time_above_zero)]
    pub timeout: Option<Duration>,
    /// Work also in quiet hours (the setting fleet.quiet_hours)
    #[arg(long)]
    pub ignore_quiet_hours: bool,
}

impl TaskFlags {
    /// What is wrong with the flags taken together.
    pub(super) fn check(&self) -> Result<(), String> {
        let of_worktree = [
            ("--base", self.base.is_some()),
            ("--sparse", !self.sparse.is_empty()),
            ("--symlink", !self.symlink.is_empty()),
        ];
        match (self.isolation, of_worktree.iter().find(|(_, given)| *given)) {
            (Some(IsolationArg::None), Some((flag, _))) => {
                Err(format!("{flag} is about a worktree, and --isolation none makes none"))
            }
            _ => Ok(()),
        }
    }
}

/// Where an agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationArg {
    /// In a git worktree of its own
    Worktree,
    /// In your directory
    None,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban agents spawn --prompt \"audit all SQL queries\" --label sql
  git diff main | caliban agents spawn --prompt-file - --label review
  caliban agents spawn --prompt=\"- fix a\" --budget-tokens 200000
  caliban agents spawn --prompt \"update the dependencies\" --label deps --every \"mon 07:00\"")]
pub(crate) struct SpawnArgs {
    /// What it shall do
    #[arg(long, value_name = "TEXT", required_unless_present = "prompt_file")]
    pub prompt: Option<String>,
    /// Read what it shall do from this file; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub prompt_file: Option<PathBuf>,
    /// A second command with the same key is the same one: it acts once
    #[arg(long, value_name = "TEXT", hide = true)]
    pub request_key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub task: TaskFlags,
    #[command(flatten)]
    pub agent: AgentFlags,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban agents list
  caliban agents list --watch
  caliban agents list --json
  caliban agents list --all-repos")]
pub(crate) struct ListArgs {
    /// Print JSON; with --watch one object for each change, one to a line
    #[arg(long)]
    pub json: bool,
    /// Stay and show what changes; q or Ctrl+C ends it
    #[arg(long, short)]
    pub watch: bool,
    /// The agents of every repo; no daemon is started for them
    #[arg(long, conflicts_with = "watch")]
    pub all_repos: bool,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct IdArg {
    /// The agent: its id, the beginning of it, or its label
    pub id: String,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct IdArgs {
    /// The agents: id, the beginning of it, or label
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Without an agent: on a terminal the list opens, to choose one. What you type goes to the agent. While it asks for a
permission: y = yes, a = always, a repo = always in this repo, n = no, or say what to do instead. /cancel stops its turn, /help lists more. Ctrl+D
leaves; the agent goes on.

Examples:
  caliban attach
  caliban attach a3f8
  caliban attach a3f8 | tee what-it-did     # not from a keyboard: nothing is read")]
pub(crate) struct AttachArgs {
    /// The agent: its id, the beginning of it, or its label
    pub id: Option<String>,
    /// No screen: plain lines
    #[arg(long)]
    pub plain: bool,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban logs a3f8
  caliban logs a3f8 -f
  caliban logs a3f8 --json")]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub agent: IdArg,
    /// Stay and print what comes, until the agent has ended
    #[arg(long, short)]
    pub follow: bool,
    /// Print calls with all their arguments, and all of their output that the agent was given
    #[arg(long, conflicts_with_all = ["raw", "json"])]
    pub whole: bool,
    /// Print what the worker process wrote to its stdout and stderr instead
    #[arg(long)]
    pub raw: bool,
    /// Print the session file as JSON; with --follow the records, one to a line
    #[arg(long, conflicts_with = "raw")]
    pub json: bool,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban agents send a3f8 \"also cover the refresh path\"
  git diff | caliban agents send a3f8 -")]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub agent: IdArg,
    /// What to say; - reads it from stdin
    #[arg(value_name = "TEXT")]
    pub text: String,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Exit codes:
  0    all of them (with --any: the first) ended done, or are idle and wait for a message
  1    one failed, crashed or was killed
  4    one reached a budget or its turn limit
  124  the time was up

Examples:
  caliban agents wait a3f8
  caliban agents wait a3f8 sql --any --timeout 10m")]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub agents: IdArgs,
    /// Return when the first of them has ended
    #[arg(long)]
    pub any: bool,
    /// Give up after this time: seconds, or a number with s, m or h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban stop a3f8
  caliban kill a3f8 sql --grace 30s
  caliban stop --all                        # all agents of this repo")]
pub(crate) struct KillArgs {
    /// The agents: id, the beginning of it, or label
    #[arg(required_unless_present = "all", value_name = "ID")]
    pub ids: Vec<String>,
    /// All agents of this repo that have not ended
    #[arg(long, conflicts_with = "ids")]
    pub all: bool,
    /// How long it gets to end by itself before it is ended by force: seconds, or a number with s, m or h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub grace: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban respawn a3f8                      # prints the new id")]
pub(crate) struct RespawnArgs {
    #[command(flatten)]
    pub agent: IdArg,
    /// A second command with the same key is the same one: it acts once
    #[arg(long, value_name = "TEXT", hide = true)]
    pub request_key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
The limits count from the agent's beginning: one that has spent 20,000 tokens and shall spend as many again gets 40000.

Examples:
  caliban resume a3f8
  caliban resume a3f8 --prompt \"now the docs\"
  caliban resume a3f8 --budget-tokens 40000 --max-turns 100")]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub agent: IdArg,
    /// Its next message; without one it goes on where it was
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// From now on: end after this many model requests, from its beginning; with --interactive, for each message
    #[arg(long, value_name = "N", value_parser = above_zero::<NonZeroU32>, allow_negative_numbers = true)]
    pub max_turns: Option<NonZeroU32>,
    /// From now on: end when this many tokens are spent, from its beginning, cache included
    #[arg(long, value_name = "TOKENS", value_parser = above_zero::<NonZeroU64>, allow_negative_numbers = true)]
    pub budget_tokens: Option<NonZeroU64>,
    /// From now on: end when this many US dollars are spent, from its beginning
    #[arg(long, value_name = "USD", value_parser = super::run::dollars, allow_negative_numbers = true)]
    pub budget_usd: Option<Usd>,
    /// From now on: end this long after each start, whatever it does: seconds, or a number with s, m or h
    #[arg(long, value_name = "TIME", value_parser = time_above_zero)]
    pub timeout: Option<Duration>,
    /// From now on: who comes first, when agents wait for a place or for a rate limit
    #[arg(long, value_name = "PRIORITY", value_parser = priorities())]
    pub priority: Option<Priority>,
    /// Begin the task anew when the transcript is damaged: what the agent did before may be done again
    #[arg(long)]
    pub from_scratch: bool,
    /// A second command with the same key is the same one: it acts once
    #[arg(long, value_name = "TEXT", hide = true)]
    pub request_key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban agents requeue a3f8 --priority high
  caliban agents requeue a3f8 --at 07:00
  caliban agents requeue a3f8 --now")]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args(["priority", "at", "now"]))]
pub(crate) struct RequeueArgs {
    #[command(flatten)]
    pub agent: IdArg,
    /// Who comes first
    #[arg(long, value_name = "PRIORITY", value_parser = priorities())]
    pub priority: Option<Priority>,
    /// Start at this time instead
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub at: Option<StartTime>,
    /// Start as soon as there is a place, whatever its time was
    #[arg(long, conflicts_with = "at")]
    pub now: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban rm a3f8
  caliban rm a3f8 --force                   # kills it first
  caliban rm a3f8 --keep                    # its worktree stays
  caliban rm --done                         # all whose work is merged; says who stays, and why")]
pub(crate) struct RmArgs {
    /// The agents: id, the beginning of it, or label
    #[arg(required_unless_present = "done", value_name = "ID")]
    pub ids: Vec<String>,
    /// All that have ended done and whose work is on a branch of yours, or who changed nothing
    #[arg(long, conflicts_with_all = ["ids", "force"])]
    pub done: bool,
    /// Kill it first if it is not stopped
    #[arg(long, short)]
    pub force: bool,
    /// Leave its worktree where it is
    #[arg(long)]
    pub keep: bool,
    /// Delete its transcript and answer, too, instead of keeping them in the archive
    #[arg(long)]
    pub purge: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban agents diff a3f8
  caliban agents diff a3f8 --stat
  caliban agents diff a3f8 | git apply")]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub agent: IdArg,
    /// Only the commits, the files and how many lines changed in each
    #[arg(long)]
    pub stat: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban agents merge a3f8
  caliban agents merge a3f8 --preview       # where it would land, and the suggested message
  caliban agents merge a3f8 --squash -m \"auth: the new token type\"
  caliban agents merge a3f8 --commit \"what was left\"
  caliban agents merge a3f8 --into release")]
pub(crate) struct MergeArgs {
    #[command(flatten)]
    pub agent: IdArg,
    /// First commit what the agent left uncommitted, with this message or a suggested one; without this flag only when the
    /// agent has made no commit
    #[arg(long, value_name = "MESSAGE", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "the flag, and its value")]
    pub commit: Option<Option<String>>,
    /// Land everything as one ordinary commit
    #[arg(long)]
    pub squash: bool,
    /// The branch to merge into, instead of the one that is checked out here
    #[arg(long, value_name = "BRANCH")]
    pub into: Option<String>,
    /// The message of the merge, or of the one commit of --squash
    #[arg(long, short, value_name = "MESSAGE")]
    pub message: Option<String>,
    /// Only show what would land where, and the suggested message: nothing is touched
    #[arg(long)]
    pub preview: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban approvals                         # what all agents ask, with numbers
  caliban approvals 2                       # one call, every character of it
  caliban approvals --watch --all-repos     # as they come, answered by typing
  caliban approve 2
  caliban approve 2 --always
  caliban deny 2 --reason \"use make check instead\"")]
pub(crate) struct ApprovalsArgs {
    /// Only this one, all of it: its number, or the agent when it asks one thing only
    #[arg(value_name = "N|ID")]
    pub ask: Option<String>,
    /// What the agents of every repo ask; no daemon is started for them
    #[arg(long, conflicts_with = "ask")]
    pub all_repos: bool,
    /// Show questions as they come, and answer them by typing: 2 y, 2 a, 2 n REASON; q leaves
    #[arg(long, conflicts_with = "ask")]
    pub watch: bool,
    /// Print JSON; with --watch a line for each question that is asked or closed
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban approve 2
  caliban approve a3f8 --always
  caliban approve 3 --always --outside
  caliban approve 3 --always --for repo --rule \"Bash(make *)\"")]
pub(crate) struct ApproveArgs {
    /// The number that `caliban approvals` shows, or the agent when it asks one thing only
    #[arg(value_name = "N|ID")]
    pub ask: String,
    /// Allow calls like it from now on, too
    #[arg(long)]
    pub always: bool,
    /// Allow them outside of the fence
    #[arg(long, requires = "always")]
    pub outside: bool,
    /// How long: session, repo (your own settings for this repo) or everywhere (your settings)
    #[arg(long = "for", value_name = "HOW-LONG", requires = "always", value_parser = PossibleValuesParser::new(KeepFor::NAMES).map(keep_for))]
    pub keep: Option<KeepFor>,
    /// Add this rule in place of the suggested one; may be given again
    #[arg(long, value_name = "RULE", requires = "always")]
    pub rule: Vec<String>,
}

fn keep_for(name: String) -> KeepFor {
    name.parse().unwrap_or_default()
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban deny 2
  caliban deny a3f8 --reason \"use make check instead\"")]
pub(crate) struct DenyArgs {
    /// The number that `caliban approvals` shows, or the agent when it asks one thing only
    #[arg(value_name = "N|ID")]
    pub ask: String,
    /// Why not, or what to do instead; the agent reads it
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// A priority, by its name.
pub(super) fn priorities() -> impl TypedValueParser<Value = Priority> {
    PossibleValuesParser::new(Priority::NAMES).try_map(|word| word.parse::<Priority>())
}

/// When an agent is to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartTime {
    /// By the machine's clock, in milliseconds since 1970.
    pub at_ms: u64,
    /// How long from now, if it was given so (`+2h`).
    pub in_ms: Option<u64>,
}

/// A moment to come, by the machine's clock.
fn moment(text: &str) -> Result<StartTime, String> {
    let now = local_time::now();
    let at = calendar::moment(text, &now).map_err(|error| error.to_string())?;
    let wait = u64::try_from(at.duration_since(now.timestamp()).as_millis()).unwrap_or_default();
    Ok(StartTime {
        at_ms: u64::try_from(at.as_millisecond()).unwrap_or_default(),
        in_ms: text.trim_start().starts_with('+').then_some(wait),
    })
}

fn recurrence(text: &str) -> Result<Recurrence, String> {
    text.parse().map_err(|error: calendar::CalendarError| error.to_string())
}

fn time_above_zero(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| match time.as_millis() {
        0 => Err("expected a time above 0".to_owned()),
        _ => Ok(time),
    })
}

/// `90`, `90s`, `5m`, `2h`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected seconds, or a number with s, m or h (90, 90s, 5m, 2h)".to_owned();
    let (number, unit) = match text.find(|c: char| !c.is_ascii_digit() && c != '.') {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let seconds = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_unless_they_say_otherwise() {
        let cases =
            [("90", 90.0), ("0.5", 0.5), ("90s", 90.0), ("5m", 300.0), ("2h", 7200.0), ("1.5m", 90.0)];
        for (text, seconds) in cases {
            assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "s", "-1", "5d", "5 m", "1e400h", "..5"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn worktree_flags_without_a_worktree_are_refused() {
        let task = TaskFlags {
            isolation: Some(IsolationArg::None),
            base: Some("main".into()),
            ..TaskFlags::default()
        };
        assert_eq!(
            task.check(),
            Err("--base is about a worktree, and --isolation none makes none".to_owned())
        );
        assert_eq!(TaskFlags { isolation: Some(IsolationArg::Worktree), ..task }.check(), Ok(()));
    }
}
