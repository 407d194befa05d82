//! `cafleet message send` and `poll`, each a process of its own, relative to the unavoidable minimum: a process start
//! and a commit.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::commit::Commits;
use super::measure::{self, Cost, Subject};
use super::table::{Table, ms};
use super::{Bed, Bench};
use crate::run;

pub(super) const BENCH: Bench = Bench {
    name: "broker",
    what: "one message sent, one polled; × is to a bare process start (true) plus opening and committing with SQLite",
    run,
};

/// The limit relative to a bare start and commit.
const AT_MOST: f64 = 3.0;
/// The absolute limit, in milliseconds.
const AT_MOST_MS: f64 = 10.0;

fn run(bed: &Bed) -> Result<Table> {
    let broker = Broker::create(bed, &bed.dir("broker")?.join("registry.db"))?;
    let (from, to, reader) = (broker.register("from")?, broker.register("to")?, broker.register("reader")?);
    broker.output(&[
        "message",
        "send",
        "--agent-id",
        &from,
        "--to",
        &reader,
        "--text",
        "hello",
        "--quiet",
    ])?;
    let send = broker.subject(&["message", "send", "--agent-id", &from, "--to", &to, "--text", "hello"]);
    let poll = broker.subject(&["message", "poll", "--agent-id", &reader]);
    let commits = Commits::before(bed, "broker")?;
    let [bare, send, poll] = measure::costs([&bed.bare(), &send, &poll], bed.runs)?;
    let commit_us = commits.after(bed)?;
    let least = bare.wall_us + commit_us;
    let mut table = Table::of_costs();
    table.cost("true", bare, None);
    table.row("SQLite, open and commit", [format!("{} {:>6}", ms(commit_us), "")]);
    row(&mut table, "cafleet message send", send, bare, least);
    row(&mut table, "cafleet message poll", poll, bare, least);
    let most = send.wall_us.max(poll.wall_us);
    table.remark("× of the wall time is to the sum of the first two rows, of the others to the first");
    table.promise("the longer of both", most / least.max(1.0), AT_MOST, "×");
    table.promise("the longer of both", most / 1_000.0, AT_MOST_MS, " ms");
    Ok(table)
}

/// A row whose wall time is relative to `wall_us`, the rest relative to the bare start.
pub(super) fn row(table: &mut Table, label: &str, cost: Cost, bare: Cost, wall_us: f64) {
    table.cost(label, cost, Some(Cost { wall_us, ..bare }));
}

/// A database with one session.
pub(super) struct Broker {
    program: PathBuf,
    home: PathBuf,
    url: String,
    pub(super) session: String,
}

impl Broker {
    /// Creates a session in a new or existing database.
    pub(super) fn create(bed: &Bed, file: &Path) -> Result<Self> {
        let mut broker = Self::open(bed, file, String::new());
        let created = run::output(&mut broker.command(&["session", "create", "--no-tmux", "--full"])?)?;
        broker.session = created.lines().next().context("no session was made")?.trim().to_owned();
        Ok(broker)
    }

    /// Opens an existing session.
    pub(super) fn open(bed: &Bed, file: &Path, session: String) -> Self {
        Self {
            program: bed.program("cafleet"),
            home: bed.scratch.clone(),
            url: format!("sqlite:///{}", file.display()),
            session,
        }
    }

    /// A command in the session, to be measured.
    pub(super) fn subject(&self, args: &[&str]) -> Subject {
        self.plain().args(["--session-id", &self.session]).args(args)
    }

    /// The output of a command in the session.
    pub(super) fn output(&self, args: &[&str]) -> Result<String> {
        let mut command = self.subject(args).command()?;
        run::output(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// The output as JSON.
    pub(super) fn json(&self, args: &[&str]) -> Result<Value> {
        let args: Vec<&str> = std::iter::once("--json").chain(args.iter().copied()).collect();
        serde_json::from_str(&self.output(&args)?).context("cafleet did not print JSON")
    }

    /// A new agent.
    pub(super) fn register(&self, name: &str) -> Result<String> {
        let agent = self.json(&["agent", "register", "--name", name, "--description", "bench"])?;
        agent["agent_id"].as_str().map(str::to_owned).context("no agent was registered")
    }

    fn plain(&self) -> Subject {
        Subject::new(&self.program, &self.home).env("CAFLEET_DATABASE_URL", self.url.as_str())
    }

    /// A command without a session.
    pub(super) fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = self.plain().args(args).command()?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }
}
