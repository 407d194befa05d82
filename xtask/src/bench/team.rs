//! A team in tmux: a broadcast to twenty members in panes while eight agents send messages.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;

use super::table::{Table, ms, times};
use super::{Bed, Bench, measure};
use crate::run;

pub(super) const BENCH: Bench = Bench {
    name: "team",
    what: "a broadcast to 20 members in panes, alone and while 8×25 messages are sent; × is to a bare process start (true)",
    run,
};

/// The limit of a broadcast, in milliseconds.
const AT_MOST_MS: f64 = 50.0;

const MEMBERS: usize = 20;
const SENDERS: usize = 8;
const SENDS: usize = 25;
/// Number of broadcasts.
const BROADCASTS: usize = 15;

fn run(bed: &Bed) -> Result<Table> {
    let team = Team::start(bed)?;
    let [bare] = measure::costs([&bed.bare()], bed.runs)?;
    let mut alone = Vec::new();
    for _ in 0..BROADCASTS {
        alone.push(team.broadcast()?);
    }
    let mut meanwhile = Vec::new();
    std::thread::scope(|scope| {
        let senders: Vec<_> = team
            .senders
            .iter()
            .map(|from| {
                let team = &team;
                scope.spawn(move || -> Result<()> {
                    for n in 0..SENDS {
                        let to = &team.members[n % MEMBERS];
                        team.cafleet(&["message", "send", "--agent-id", from, "--to", to, "--text", "x"])?;
                    }
                    Ok(())
                })
            })
            .collect();
        while senders.iter().any(|sender| !sender.is_finished()) {
            meanwhile.push(team.broadcast()?);
        }
        senders.into_iter().try_for_each(|sender| sender.join().map_err(|_| anyhow!("a sender panicked"))?)
    })?;
    ensure!(!meanwhile.is_empty(), "the senders were done before the first broadcast");
    let mut table = Table::of_costs();
    table.cost("true", bare, None);
    for (label, took) in [("broadcast", &alone), ("broadcast, 8×25 sends meanwhile", &meanwhile)] {
        let middle = measure::median(took.iter().map(|took| took.as_secs_f64() * 1e6).collect());
        table.row(label, [format!("{} {:>6}", ms(middle), times(middle / bare.wall_us.max(1.0)))]);
        table.promise(label, middle / 1_000.0, AT_MOST_MS, " ms");
    }
    table.remark(format!("medians of {} and {} broadcasts; no command failed", alone.len(), meanwhile.len()));
    Ok(table)
}

/// A tmux server with a broker session in it, killed when this is dropped.
struct Team<'a> {
    bed: &'a Bed,
    socket: String,
    tmux: String,
    session: String,
    director: String,
    members: Vec<String>,
    senders: Vec<String>,
}

impl<'a> Team<'a> {
    fn start(bed: &'a Bed) -> Result<Self> {
        let dir = bed.dir("team")?;
        let socket = dir.join("tmux.sock").display().to_string();
        let mut team = Self {
            bed,
            socket,
            tmux: String::new(),
            session: String::new(),
            director: String::new(),
            members: Vec::new(),
            senders: Vec::new(),
        };
        let size = ["-x", "400", "-y", "400"];
        team.ask(&[&["-f", "/dev/null", "new-session", "-d"], &size[..], &["exec sleep 3600"]].concat())?;
        let pid = team.ask(&["display-message", "-p", "-t", "%0", "#{pid}"])?;
        team.tmux = format!("{},{},0", team.socket, pid.trim());
        let made = team.json(&["session", "create", "--json"])?;
        team.session = id(&made["session_id"])?;
        team.director = id(&made["director"]["agent_id"])?;
        for n in 0..MEMBERS {
            let name = format!("member-{n}");
            let create = ["--json", "member", "create", "--agent-id", &team.director, "--name", &name];
            let how = ["--description", "bench", "--coding-agent", "command:cat", "--", "-"];
            let made = team.json(&[&create[..], &how[..]].concat())?;
            team.members.push(id(&made["agent_id"])?);
        }
        for n in 0..SENDERS {
            let name = format!("sender-{n}");
            let made =
                team.json(&["--json", "agent", "register", "--name", &name, "--description", "bench"])?;
            team.senders.push(id(&made["agent_id"])?);
        }
        Ok(team)
    }

    fn broadcast(&self) -> Result<Duration> {
        let start = Instant::now();
        self.cafleet(&["message", "broadcast", "--agent-id", &self.director, "--text", "all"])?;
        Ok(start.elapsed())
    }

    fn cafleet(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(self.bed.program("cafleet"));
        if !self.session.is_empty() {
            command.args(["--session-id", &self.session]);
        }
        command.args(args).env("HOME", &self.bed.scratch).env("TMUX", &self.tmux).env("TMUX_PANE", "%0");
        let url = format!("sqlite:///{}", self.bed.dir("team")?.join("registry.db").display());
        command.env("CAFLEET_DATABASE_URL", url).stdin(Stdio::null());
        run::output(&mut command)
    }

    fn json(&self, args: &[&str]) -> Result<Value> {
        serde_json::from_str(&self.cafleet(args)?).context("cafleet did not print JSON")
    }

    fn ask(&self, args: &[&str]) -> Result<String> {
        run::output(Command::new("tmux").args(["-u", "-S", &self.socket]).args(args))
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        // Best effort. Kills our own server by its socket; the deliverer exits with it.
        let _gone = self.ask(&["kill-server"]);
    }
}

fn id(value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).context("no id was printed")
}
