//! The background fleet from the command line: `--bg`, `caliban agents …`, its shorthands, approvals and the daemon.
//! One file for each verb.
//!
//! Everything here is a client: of the daemon (what there is, start, end) and of an agent's own socket (talk).
//! stdout is data, stderr is talk; text and JSON come from one struct.

mod all_repos;
mod answer;
mod approval_numbers;
mod approvals;
mod approvals_watch;
mod attach;
mod connections;
mod daemon;
mod diff;
mod git_programs;
pub(crate) mod json;
pub(crate) mod json_escape;
mod kill;
mod list;
mod logs;
mod merge;
pub(crate) mod questions;
mod requeue;
mod respawn;
mod resume;
mod rm;
mod schedule;
mod send;
mod spawn;
pub(crate) mod spawner;
mod view;
mod wait;
mod watch;
mod watch_keys;
mod width;

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use caliban_acp::Unreached;
use caliban_contract::{
    DaemonOptions, PlaceSources, Places,
    moved_repos::{self, Elsewhere, Fate},
};
use caliban_core::ids::AgentId;
use caliban_fleet::{
    Client, ClientError,
    caller::FleetCaller,
    caller_environment,
    protocol::{AgentRow, ApiError, Awake, ErrorCode, KeysRequest, ScheduleRow, WakeRequest},
    refusal::{Refusal, RefusalKind, VerbError},
    words as row,
};

use crate::{
    cli::{Cli, Command, agents::AgentsCommand},
    report::{self, Code, Failure, Result},
    session_places::label_of,
    settings::{Environment, Layer},
};

pub(crate) use caliban_fleet::words::turns;

/// The fleet of the repo that we are in.
pub(crate) struct Fleet<'a> {
    environment: &'a Environment,
    cwd: PathBuf,
    places: Places,
    root: Root,
}

/// Whether the repo itself is there. Its agents are, in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root {
    There,
    Gone,
}

/// How long the daemon may take to answer before people are told that they wait for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the command is one of the fleet's.
pub(crate) fn is_verb(command: &Command) -> bool {
    match command {
        Command::Agents(command) => !matches!(command, AgentsCommand::Types { .. }),
        Command::Schedule(_) | Command::Daemon(_) => true,
        _ => false,
    }
}

/// Carries a verb out. stdout is locked here only, because an attached terminal needs it line by line.
pub(crate) async fn fleet(command: &Command, environment: &Environment, cwd: &Path) -> Result<Code> {
    let fleet = Fleet::open(environment, cwd)?;
    fleet.check_root(command)?;
    let outcome = carry_out(&fleet, command).await;
    fleet.say_who_is_elsewhere(command, outcome.is_err());
    outcome
}

async fn carry_out(fleet: &Fleet<'_>, command: &Command) -> Result<Code> {
    let mut out = anstream::stdout().lock();
    let out: &mut dyn Write = &mut out;
    match command {
        Command::Agents(command) => match command {
            AgentsCommand::Spawn(args) => spawn::from_args(fleet, args, out).await,
            AgentsCommand::View => view::view(fleet).await,
            AgentsCommand::List(args) => list::list(fleet, args, out).await,
            AgentsCommand::Attach(args) => attach::from_args(fleet, args, out).await,
            AgentsCommand::Logs(args) => logs::logs(fleet, args, out).await,
            AgentsCommand::Send(args) => send::send(fleet, args, out).await,
            AgentsCommand::Wait(args) => wait::wait(fleet, args, out).await,
            AgentsCommand::Kill(args) => kill::kill(fleet, args, out).await,
            AgentsCommand::Respawn(args) => respawn::respawn(fleet, args, out).await,
            AgentsCommand::Resume(args) => resume::resume(fleet, args, out).await,
            AgentsCommand::Requeue(args) => requeue::requeue(fleet, args, out).await,
            AgentsCommand::Rm(args) => rm::rm(fleet, args, out).await,
            AgentsCommand::Approvals(args) => approvals::approvals(fleet, args, out).await,
            AgentsCommand::Approve(args) => answer::approve(fleet, args, out).await,
            AgentsCommand::Deny(args) => answer::deny(fleet, args, out).await,
            AgentsCommand::Diff(args) => diff::diff(fleet, args, out).await,
            AgentsCommand::Merge(args) => merge::merge(fleet, args, out).await,
            AgentsCommand::Types { .. } => Ok(Code::Done),
        },
        Command::Schedule(command) => schedule::schedule(fleet, command, out).await,
        Command::Daemon(command) => daemon::daemon(fleet, command, out).await,
        _ => Err(Failure::new("caliban has a fault, please report it: nobody carries this command out")),
    }
}

/// `caliban --bg "…"`: the same as `caliban agents spawn --prompt "…"`.
pub(crate) async fn background(cli: &Cli, environment: &Environment, cwd: &Path) -> Result<Code> {
    let fleet = Fleet::open(environment, cwd)?;
    spawn::from_cli(&fleet, cli, &mut anstream::stdout().lock()).await
}

/// The agent view on this terminal; returns when the person leaves it. A session that opens it gives its own terminal
/// modes back first and takes them again afterwards.
pub(crate) async fn agent_view(environment: &Environment, cwd: &Path) -> Result<Code> {
    let fleet = Fleet::open(environment, cwd)?;
    view::view(&fleet).await
}

impl<'a> Fleet<'a> {
    /// The fleet of the repo that `cwd` is in.
    pub(crate) fn open(environment: &'a Environment, cwd: &Path) -> Result<Self> {
        let sources = place_sources(environment)?;
        if let Some(places) = moved_repos::places_of_gone(cwd, &sources) {
            // What there is of its settings went with it; the user's count.
            let cwd = places.base().to_owned();
            return Ok(Self { environment, cwd, places, root: Root::Gone });
        }
        let places = Places::find(cwd, &sources)
            .map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
        let cwd = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
        Ok(Self { environment, cwd, places, root: Root::There })
    }

    /// Refuses what needs the repo itself when that is gone.
    fn check_root(&self, command: &Command) -> Result<()> {
        let needs_it = matches!(
            command,
            Command::Agents(
                AgentsCommand::Spawn(_)
                    | AgentsCommand::Respawn(_)
                    | AgentsCommand::Resume(_)
                    | AgentsCommand::Diff(_)
                    | AgentsCommand::Merge(_)
            )
        );
        if self.root == Root::There || !needs_it {
            return Ok(());
        }
        let repo = self.places.repo().display();
        Err(Failure::new(format!("the repo {repo} is not there any more, and this needs it")).hint(
            "move it back to that place; list, attach, logs, send, wait, approvals, kill and rm work without it",
        ))
    }

    /// Whoever finds no agents here, or not the one that they mean, may be in a repo that was moved.
    fn say_who_is_elsewhere(&self, command: &Command, has_failed: bool) {
        let looks = match command {
            Command::Agents(AgentsCommand::List(args)) => !args.all_repos,
            Command::Agents(AgentsCommand::Spawn(_)) => false,
            _ => true,
        };
        let has_none =
            || std::fs::read_dir(self.places.agents_dir()).map_or(true, |mut all| all.next().is_none());
        if !looks || !(has_failed || has_none()) {
            return;
        }
        let Ok(sources) = place_sources(self.environment) else { return };
        for other in moved_repos::elsewhere(&sources, &self.places) {
            report::note(&elsewhere_in_words(&other));
        }
    }

    /// A connection to the daemon, which is started when there is none.
    pub(crate) async fn client(&self) -> Result<Client> {
        let options = match crate::settings::load(self.environment, &self.cwd, Layer::default()) {
            Ok(loaded) => loaded.daemon_options(),
            // A mistake in a file must not keep people from seeing and stopping what runs.
            Err(error) => {
                report::note(&format!("{error}; without the settings for now"));
                DaemonOptions::default()
            }
        };
        self.client_with(options).await
    }

    /// The same with settings that are loaded already.
    async fn client_with(&self, options: DaemonOptions) -> Result<Client> {
        let program = crate::compose::own_program()?;
        let start = self.caller(&program).start_options(options);
        let client = Client::connect_or_start(&self.places, start).await.map_err(|error| {
            let failure = Failure::from(error);
            // Its log had no room, either.
            let full = std::io::Error::from(rustix::io::Errno::NOSPC).to_string();
            match failure.message.contains(&full) {
                true => failure.hint(format!("make room on the disk of {}", self.places.base().display())),
                false => failure,
            }
        });
        let mut client = client?;
        if client.has_started() {
            self.say_what_was_missed(&mut client).await;
        }
        Ok(client)
    }

    /// A daemon was started for this command: people hear what should have begun while none was there, and schedules whose
    /// keys went with a reboot get those of this shell. Best effort: the command itself is what they want.
    async fn say_what_was_missed(&self, client: &mut Client) {
        let Ok(status) = client.status().await else { return };
        for line in &status.found.missed {
            report::note(&caliban_core::inert::line(line));
        }
        if status.schedules > 0 {
            let _kept_waiting = self.with_keys(client).await;
        }
    }

    /// All schedules; those that wait for keys get ours first.
    async fn with_keys(&self, client: &mut Client) -> Result<Vec<ScheduleRow>> {
        let schedules = client.schedules().await?;
        if !schedules.iter().any(|schedule| schedule.needs_keys) {
            return Ok(schedules);
        }
        let loaded = crate::settings::load(self.environment, &self.cwd, Layer::default())?;
        let secrets = caller_environment::caller(self.environment, &loaded).handover.into();
        match client.schedule_keys(&KeysRequest { secrets }).await {
            // An agent's process has none to give.
            Err(ClientError::Refused(_)) => Ok(schedules),
            other => other.map_err(Failure::from),
        }
    }

    /// Where everything of this repo's fleet is.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// Waits for what the daemon is asked. When it takes long, people are told whom they wait for, and what they can do.
    async fn patiently<T>(&self, asked: impl Future<Output = T>, what_to_do: &str) -> T {
        tokio::pin!(asked);
        tokio::select! {
            answer = &mut asked => return answer,
            () = tokio::time::sleep(PATIENCE) => {}
        }
        // One that has ended, or has yet to begin, is waited for by its starter.
        if let Some(pid) = self.daemon_pid() {
            say(&format!("waiting for the daemon (pid {pid}), which does not answer; {what_to_do}"));
        }
        asked.await
    }

    /// The process that says in the daemon's lock to be it, when there is such a process.
    fn daemon_pid(&self) -> Option<i32> {
        let lock = std::fs::read(self.places.daemon_lock()).ok()?;
        let line = String::from_utf8_lossy(lock.split(|byte| *byte == b'\n').next()?).into_owned();
        let pid: i32 = line.strip_prefix("pid ")?.split_whitespace().next()?.parse().ok()?;
        Path::new("/proc").join(pid.to_string()).exists().then_some(pid)
    }

    /// Makes sure that an agent listens; one whose keys went with the runtime directory gets ours, as at a resume.
    async fn wake(&self, client: &mut Client, agent: &str) -> Result<Awake, ClientError> {
        self.check_ground(&client.show(agent).await?)?;
        match client.wake(agent).await {
            Err(ClientError::Refused(error)) if error.code == ErrorCode::SecretsGone => {
                let row = client.show(agent).await?;
                let program = PathBuf::new();
                let Ok((caller, _)) = self.caller(&program).again(&row) else {
                    return Err(ClientError::Refused(error));
                };
                client.wake_with(agent, &WakeRequest { secrets: caller.handover.into() }).await
            }
            Err(ClientError::Refused(mut error)) if error.code == ErrorCode::Queued => {
                error.hint.get_or_insert_with(|| {
                    format!(
                        "it has not begun, and was not told; caliban attach {agent} keeps what you type until it hears it"
                    )
                });
                Err(ClientError::Refused(error))
            }
            other => other,
        }
    }

    /// Do not wake a hibernated agent whose working directory is gone: its run would fail at once.
    fn check_ground(&self, row: &AgentRow) -> Result<(), ApiError> {
        // Who has a worktree can stand anywhere in the repo.
        let ground = match row.worktree {
            Some(_) if !row.cwd.is_dir() => self.places.repo(),
            _ => &row.cwd,
        };
        if !row.hibernated || ground.is_dir() {
            return Ok(());
        }
        let text = format!(
            "agent {} sleeps, and cannot wake: the directory {} is not there any more",
            row.id,
            ground.display()
        );
        Err(ApiError::new(ErrorCode::Conflict, text)
            .hint("it was told nothing and sleeps on; if the repo was moved, move it back to that place"))
    }

    /// Who asks here; `program` is our own.
    fn caller<'b>(&'b self, program: &'b Path) -> FleetCaller<'b> {
        FleetCaller {
            environment: self.environment,
            cwd: &self.cwd,
            places: &self.places,
            program,
            may_run: git_programs::is_accepted,
        }
    }
}

/// The agent that has this label, if one has. No daemon is started for a label that nobody ever had.
pub(crate) fn labelled(environment: &Environment, cwd: &Path, label: &str) -> Result<Option<AgentId>> {
    let fleet = Fleet::open(environment, cwd)?;
    let had_it = |dir: &Path| label_of(dir).is_some_and(|own| own == label);
    let mut agents = std::fs::read_dir(fleet.places.agents_dir()).into_iter().flatten().flatten();
    if !agents.any(|agent| had_it(&agent.path())) {
        return Ok(None);
    }
    crate::runtime()?.block_on(async {
        let row = fleet.client().await?.show(label).await?;
        Ok(Some(row.id))
    })
}

/// Whether a directory that is gone was in a repo with a fleet.
pub(crate) fn is_known(environment: &Environment, dir: &Path) -> bool {
    place_sources(environment).is_ok_and(|sources| moved_repos::places_of_gone(dir, &sources).is_some())
}

fn elsewhere_in_words(other: &Elsewhere) -> String {
    let repo = other.repo.display();
    let (who, them) = match other.fate {
        Fate::IsHere => (other.agents, "belong"),
        Fate::Gone => (other.running, "run"),
    };
    let who = match who {
        1 => format!("1 agent of it {them}s"),
        _ => format!("{who} agents of it {them}"),
    };
    let them = if who.starts_with("1 ") { "it" } else { "them" };
    match other.fate {
        Fate::IsHere => {
            format!("this repo was at {repo}, and {who} there: caliban -C {repo} agents list shows {them}")
        }
        Fate::Gone => format!(
            "{repo} is gone, and {who}: if that repo was moved, move it back; \
             caliban -C {repo} agents list shows {them} meanwhile"
        ),
    }
}

/// What the environment says about the places of a fleet.
pub(crate) fn place_sources(environment: &Environment) -> Result<PlaceSources> {
    let path = |name: &str| environment.raw(name).map(PathBuf::from);
    Ok(PlaceSources {
        daemon_runtime_dir: path("CALIBAN_DAEMON_RUNTIME_DIR"),
        xdg_runtime_dir: path("XDG_RUNTIME_DIR"),
        tmpdir: path("TMPDIR"),
        data: environment.paths()?.data,
    })
}

/// The daemon's words, with what to do about them.
impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let hint = match &error {
            // The words name them all; of a label there is no more to write.
            ClientError::Refused(refused) if refused.code == ErrorCode::Ambiguous => {
                Some("say which by its id, or enough of it".to_owned())
            }
            _ => error.hint(),
        };
        inert_failure(&error.to_string(), hint)
    }
}

/// What an agent says over its own socket, with what to do about it.
impl From<Unreached> for Failure {
    fn from(Unreached { message, hint, .. }: Unreached) -> Self {
        inert_failure(&message, hint)
    }
}

impl From<caliban_acp::ClientError> for Failure {
    fn from(error: caliban_acp::ClientError) -> Self {
        Unreached::from(error).into()
    }
}

fn inert_failure(message: &str, hint: Option<String>) -> Failure {
    let inert = |text: &str| caliban_core::inert::block(text).into_owned();
    Failure::hinted(inert(message), hint.map(|hint| inert(&hint)))
}

/// What is said of work that lands or does not.
impl From<Refusal> for Failure {
    fn from(words: Refusal) -> Self {
        let code = match words.kind {
            RefusalKind::Usage => Code::Usage,
            RefusalKind::Interrupted => Code::Interrupted,
            RefusalKind::Failed => Code::Failed,
        };
        Self { message: words.message, hint: words.hint, code }
    }
}

impl From<VerbError> for Failure {
    fn from(error: VerbError) -> Self {
        match error {
            VerbError::Refused(refusal) => refusal.into(),
            VerbError::Daemon(error) => error.into(),
        }
    }
}

/// A value on a line of its own, for programs; a terminal that gets to see it is not touched by what it says.
pub(crate) fn json_line(value: &impl serde::Serialize, out: &mut dyn Write) -> Result<()> {
    let json = serde_json::to_string(value).map_err(std::io::Error::from)?;
    writeln!(out, "{}", json_escape::json(&json))?;
    out.flush()?;
    Ok(())
}

/// A line of talk on stderr. A stderr that is gone cannot be told.
fn say(line: &str) {
    if report::is_shown_by_screen(line) {
        return;
    }
    let _gone = writeln!(anstream::stderr().lock(), "{}", caliban_core::inert::line(line));
}

#[cfg(test)]
mod tests {
    use caliban_core::lifecycle::State;
    use caliban_fleet::protocol::AgentRow;

    /// An agent for tests.
    pub(crate) fn row(state: State) -> AgentRow {
        AgentRow { prompt: "task".into(), ..AgentRow::new("a3f8b2c1".parse().unwrap(), state) }
    }
}
