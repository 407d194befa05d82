//! The place that the demo plays in: a temp dir with a home, a runtime directory and a repo of its own. Commands are
//! shown as they are typed and run for real. Clearing it ends every process that was started in it and removes it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::Write,
    os::unix::{ffi::OsStrExt as _, fs::DirBuilderExt as _},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use caliban_fleet::{
    Client,
    feed::{FleetFeed, FleetNews},
    protocol::AgentRow,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{process::Command, time::Instant};

use super::Scene;
use crate::{
    fleet::Fleet,
    report::{Failure, Result},
    settings::Environment,
};

const TYPED: Style = Style::new().bold();
const SAID: Style = AnsiColor::Cyan.on_default();

/// The files of the project: where they go, and what is in them.
const PROJECT: [(&str, &str); 5] = [
    ("test.sh", include_str!("project/test.sh")),
    ("lib/sum.sh", include_str!("project/sum.sh")),
    ("tests/sum.sh", include_str!("project/test_sum.sh")),
    ("release-notes.sh", include_str!("project/release-notes.sh")),
    ("NEWS", "- the first release\n"),
];

/// What the scripted model says.
const SCRIPT: &str = include_str!("script.json");

/// Variables that are taken from the person who looks on: how things are found and shown.
const TAKEN: [&str; 6] = ["PATH", "TERM", "COLORTERM", "NO_COLOR", "LANG", "LC_ALL"];

/// How long processes may take to end when they are told to.
const END_LIMIT: Duration = Duration::from_secs(20);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// The place.
pub(super) struct Stage {
    root: PathBuf,
    environment: Environment,
    program: PathBuf,
}

impl Stage {
    /// Sets it up.
    pub(super) fn set(outer: &Environment) -> Result<Self> {
        for program in ["git", "sh"] {
            if outer.find_program(program).is_none() {
                return Err(Failure::new(format!("the demo needs {program}, which is not on PATH")));
            }
        }
        let root = fresh(&outer.paths()?.temporary)?;
        let stage =
            Self { environment: environment(outer, &root), program: crate::compose::own_program()?, root };
        let made = stage.build();
        if made.is_err() {
            // Nothing runs in it yet.
            let _left = fs::remove_dir_all(&stage.root);
        }
        made.map(|()| stage)
    }

    fn build(&self) -> Result<()> {
        let at = |path: &str| self.root.join(path);
        let write = |path: PathBuf, text: &str| {
            let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
            made.map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
        };
        write(at("script.json"), SCRIPT)?;
        let script = toml::Value::String(at("script.json").to_string_lossy().into_owned());
        let settings = format!(
            "provider = \"scripted\"\nsandbox = \"auto\"\n[providers.scripted]\nscript = {script}\n\
             [permissions]\nallow = [\"Bash(sh test.sh)\", \"Bash(sh tests/*)\", \"Bash(git add *)\", \
             \"Bash(git commit *)\", \"Bash(git log *)\"]\n"
        );
        write(at("config/caliban/settings.toml"), &settings)?;
        write(
            at("gitconfig"),
            "[user]\n\tname = You\n\temail = you@example.org\n[init]\n\tdefaultBranch = main\n\
             [gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[core]\n\tpager = cat\n",
        )?;
        for dir in ["home", "data", "tmp"] {
            fs::create_dir_all(at(dir))?;
        }
        fs::DirBuilder::new().mode(0o700).create(at("run"))?;
        for (path, text) in PROJECT {
            write(self.repo().join(path), text)?;
        }
        for args in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "a shell library"]] {
            let status = std::process::Command::new("git")
                .args(args)
                .current_dir(self.repo())
                .env_clear()
                .envs(self.environment.iter())
                .status();
            if !status.is_ok_and(|status| status.success()) {
                return Err(Failure::new(format!("git {} failed in {}", args[0], self.root.display())));
            }
        }
        Ok(())
    }

    fn repo(&self) -> PathBuf {
        self.root.join("repo")
    }

    /// A line for the person who looks on.
    pub(super) fn say(&self, line: &str) -> Result<()> {
        let mut out = anstream::stdout().lock();
        writeln!(out, "\n{SAID}# {line}{SAID:#}")?;
        out.flush()?;
        Ok(())
    }

    /// Runs a command; it must succeed.
    pub(super) async fn run(&self, program: &str, args: &[&str]) -> Result<()> {
        match self.try_run(program, args).await? {
            true => Ok(()),
            false => Err(Failure::new(format!("`{program} {}` failed", args.join(" ")))),
        }
    }

    /// Runs a command; whether it succeeded.
    pub(super) async fn try_run(&self, program: &str, args: &[&str]) -> Result<bool> {
        self.show(program, args)?;
        let status = self.command(Path::new(program), args).status().await;
        let status = status.map_err(|error| Failure::new(format!("cannot run {program}: {error}")))?;
        Ok(status.success())
    }

    /// Runs ourselves; it must succeed.
    pub(super) async fn caliban(&self, args: &[&str]) -> Result<()> {
        match self.try_caliban(args).await? {
            true => Ok(()),
            false => Err(Failure::new(format!("`caliban {}` failed", args.join(" ")))),
        }
    }

    /// Runs ourselves; whether it succeeded.
    pub(super) async fn try_caliban(&self, args: &[&str]) -> Result<bool> {
        self.show("caliban", args)?;
        Ok(self.command(&self.program, args).status().await?.success())
    }

    /// What the daemon says of an agent.
    pub(super) async fn agent(&self, label: &str) -> Result<AgentRow> {
        let fleet = Fleet::open(&self.environment, &self.repo())?;
        fleet.client().await?.show(label).await.map_err(|error| Failure::new(error.to_string()))
    }

    /// Kills a process, by our own hand: not every machine has a program for it.
    pub(super) fn kill_hard(&self, pid: u32) -> Result<()> {
        self.show("kill", &["-9", &pid.to_string()])?;
        let process = Pid::from_raw(pid.cast_signed());
        let process = process.ok_or_else(|| Failure::new(format!("{pid} is no process")))?;
        kill_process(process, Signal::KILL)
            .map_err(|error| Failure::new(format!("cannot kill {pid}: {error}")))
    }

    /// The daemon's process.
    pub(super) async fn daemon_pid(&self) -> Result<u32> {
        let fleet = Fleet::open(&self.environment, &self.repo())?;
        let status = fleet.client().await?.status().await;
        Ok(status.map_err(|error| Failure::new(error.to_string()))?.pid)
    }

    /// Shows the list as it changes, until the fleet is so.
    pub(super) async fn watch(&self, limit: Duration, is_so: Scene) -> Result<()> {
        let args = ["agents", "list", "--watch"];
        self.show("caliban", &args)?;
        let mut watch = self.command(&self.program, &args).spawn()?;
        let seen = tokio::time::timeout(limit, self.until(is_so)).await;
        // What was seen by us is on its way to the watcher, too.
        tokio::time::sleep(Duration::from_millis(300)).await;
        if let Some(pid) = watch.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
            let _gone = kill_process(pid, Signal::INT);
        }
        watch.wait().await?;
        seen.map_err(|_| Failure::new(format!("the agents are not there after {} s", limit.as_secs())))?
    }

    async fn until(&self, is_so: Scene) -> Result<()> {
        let fleet = Fleet::open(&self.environment, &self.repo())?;
        let client = fleet.client().await?;
        let broken = |error: caliban_fleet::ClientError| Failure::new(error.to_string());
        let mut feed = FleetFeed::of(client.events().await.map_err(broken)?);
        let mut rows = BTreeMap::new();
        while let Ok(news) = feed.next().await {
            match news {
                FleetNews::All(all) => rows = all.into_iter().map(|row| (row.id, row)).collect(),
                FleetNews::Changed(row) => drop(rows.insert(row.id, *row)),
                FleetNews::Removed(id) => drop(rows.remove(&id)),
            }
            let all: Vec<_> = rows.values().cloned().collect();
            if is_so(&all) {
                return Ok(());
            }
        }
        Err(Failure::new("the daemon has left"))
    }

    /// Ends everything and removes the place; says what was left to do.
    pub(super) async fn clear(&self) -> Result<()> {
        // The daemon is asked first: it ends agents with all that they started.
        if let Ok(fleet) = Fleet::open(&self.environment, &self.repo())
            && let Ok(mut client) = Client::connect(fleet.places()).await
        {
            for row in client.list().await.unwrap_or_default() {
                let _ended = client.kill(&row.id.to_string(), &Default::default()).await;
            }
            let _left = client.shutdown().await;
        }
        let give_up = Instant::now() + END_LIMIT;
        while !self.processes().is_empty() && Instant::now() < give_up {
            tokio::time::sleep(LOOK).await;
        }
        let left = self.processes();
        for pid in &left {
            let _gone = Pid::from_raw(*pid).map(|pid| kill_process(pid, Signal::KILL));
        }
        fs::remove_dir_all(&self.root)
            .map_err(|error| Failure::new(format!("cannot remove {}: {error}", self.root.display())))?;
        if !left.is_empty() {
            return Err(Failure::new(format!("{} processes had to be ended by force", left.len())));
        }
        self.say(&format!("No process is left, and {} is removed.", self.root.display()))
    }

    /// Whatever was started in this place, known by the place's name in its environment. What hides that has the name in its
    /// command line: daemon, shim and worker.
    fn processes(&self) -> Vec<i32> {
        let needle = self.root.as_os_str().as_bytes();
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| *pid != own)
            .filter(|pid| {
                ["environ", "cmdline"].iter().any(|file| {
                    fs::read(format!("/proc/{pid}/{file}"))
                        .is_ok_and(|text| text.windows(needle.len()).any(|part| part == needle))
                })
            })
            .collect()
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.repo())
            .env_clear()
            .envs(self.environment.iter())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    fn show(&self, program: &str, args: &[&str]) -> Result<()> {
        let quote = |arg: &&str| if arg.contains(' ') { format!("\"{arg}\"") } else { (*arg).to_owned() };
        let args: Vec<String> = args.iter().map(quote).collect();
        let mut out = anstream::stdout().lock();
        writeln!(out, "\n{TYPED}$ {program} {}{TYPED:#}", args.join(" "))?;
        out.flush()?;
        Ok(())
    }
}

/// A new directory that nobody else can look into.
fn fresh(temporary: &Path) -> Result<PathBuf> {
    let name = caliban_contract::random_hex::<4>().map_err(|error| Failure::new(error.to_string()))?;
    let root = temporary.join(format!("caliban-demo-{name}"));
    let made = fs::DirBuilder::new().mode(0o700).create(&root).and_then(|()| root.canonicalize());
    made.map_err(|error| Failure::new(format!("cannot make {}: {error}", root.display())))
}

fn environment(outer: &Environment, root: &Path) -> Environment {
    let mut vars: Vec<(OsString, OsString)> =
        TAKEN.iter().filter_map(|name| Some(((*name).into(), outer.raw(name)?.to_owned()))).collect();
    for (name, below) in [
        ("HOME", "home"),
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_DATA_HOME", "data"),
        ("XDG_RUNTIME_DIR", "run"),
        ("TMPDIR", "tmp"),
        ("GIT_CONFIG_GLOBAL", "gitconfig"),
        ("GIT_CEILING_DIRECTORIES", ""),
    ] {
        vars.push((name.into(), root.join(below).into()));
    }
    vars.push(("GIT_CONFIG_NOSYSTEM".into(), "1".into()));
    vars.push(("GIT_TERMINAL_PROMPT".into(), "0".into()));
    vars.into_iter().collect()
}
