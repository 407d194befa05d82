//! Starting the daemon: exactly one, whatever happened before and however many try (r08).
//!
//! Whoever finds nobody listening takes the start lock, looks again, starts one and waits for its word. The
//! others wait for the lock or for a daemon that listens, whichever comes first.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use caliban_core::ids::AgentId;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout_at};

use super::{ClientError, DaemonConnection, connect};
use crate::protocol::{READY, RUNNING_ALREADY};
use caliban_contract::daemon_options::DaemonOptions;
use caliban_contract::lock::{self, HeldLock};
use caliban_contract::modes;
use caliban_contract::places::Places;

/// How long a daemon may take to be ready.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How often the others look.
const LOOK: Duration = Duration::from_millis(5);
/// How many daemons are started one after another when each ends without a word.
const TRIES: u32 = 4;
/// The most that a daemon says while it starts.
const WORD_CAP: u64 = 16 * 1024;

/// How a daemon is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartOptions {
    /// The programs to try, in order, each with the arguments that make it a daemon; see
    /// [`StartOptions::programs`].
    pub programs: Vec<(PathBuf, Vec<OsString>)>,
    /// Its environment: what git and the search for programs need (`PATH`, `HOME`, `LANG`), nothing secret.
    pub environment: BTreeMap<OsString, OsString>,
    /// Its settings.
    pub options: DaemonOptions,
}

impl StartOptions {
    /// The order of programs: `caliband` beside the own executable, on `path` (the value of `PATH`), else the
    /// own executable (`caliban`) in daemon mode.
    pub fn programs(own: &Path, path: Option<&std::ffi::OsStr>) -> Vec<(PathBuf, Vec<OsString>)> {
        let beside = own.parent().map(|dir| dir.join("caliband"));
        let on_path = path.into_iter().flat_map(std::env::split_paths).map(|dir| dir.join("caliband"));
        let mut programs: Vec<(PathBuf, Vec<OsString>)> = beside
            .into_iter()
            .chain(on_path)
            .filter(|program| program.is_absolute() && program.is_file())
            .map(|program| (program, Vec::new()))
            .collect();
        programs.truncate(2);
        programs.push((own.to_owned(), vec![modes::DAEMON.into()]));
        programs
    }
}

/// Connects to a daemon that somebody starts: we, or another client that was faster.
pub(super) async fn start(places: &Places, options: &StartOptions) -> Result<DaemonConnection, ClientError> {
    places.prepare()?;
    let own = places;
    let places = &where_agents_are(places);
    let give_up = Instant::now() + START_LIMIT;
    let mut tries = TRIES;
    loop {
        let taken = HeldLock::try_take(&places.start_lock())
            .map_err(|error| ClientError::Start(format!("{}: {error}", places.start_lock().display())))?;
        if let Some(_lock) = taken {
            // The last holder may have started one.
            match connect(places).await {
                Err(ClientError::NotRunning(_)) => {}
                other => return other,
            }
            tries -= 1;
            match launch(own, places, options, give_up).await? {
                Launched::Listens(connection) => return Ok(*connection),
                // Somebody killed it, which says nothing about the next one.
                Launched::Gone if tries > 0 => continue,
                Launched::Gone => {
                    let text = format!("it ended without a word (see {})", places.log().display());
                    return Err(ClientError::Start(text));
                }
            }
        }
        match connect(places).await {
            Err(ClientError::NotRunning(_)) if Instant::now() < give_up => sleep(LOOK).await,
            Err(ClientError::NotRunning(_)) => {
                return Err(ClientError::Start(
                    "another command has been starting it for too long".to_owned(),
                ));
            }
            other => return other,
        }
    }
}

enum Launched {
    Listens(Box<DaemonConnection>),
    /// It ended while it started, or right after.
    Gone,
}

impl Launched {
    fn of(connected: Result<DaemonConnection, ClientError>) -> Result<Self, ClientError> {
        match connected {
            Ok(connection) => Ok(Self::Listens(Box::new(connection))),
            Err(ClientError::NotRunning(_)) => Ok(Self::Gone),
            Err(error) => Err(error),
        }
    }
}

/// The places for a new daemon: where the sockets and secrets of agents are that live on, as the last daemon left them,
/// when our own environment would have it elsewhere.
fn where_agents_are(places: &Places) -> Places {
    let before = lock::socket(&places.daemon_lock());
    let Some(runtime) = before.as_deref().and_then(Path::parent) else { return places.clone() };
    match places.at(runtime) {
        Ok(there) if runtime != places.runtime() && has_agents(&there) && there.prepare().is_ok() => there,
        _ => places.clone(),
    }
}

fn has_agents(places: &Places) -> bool {
    let dirs = places.runtime_dirs();
    let mut files = dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten();
    files.any(|file| {
        let name = file.file_name();
        let id = name.to_str().and_then(|name| name.split('.').next());
        id.is_some_and(|id| id.parse::<AgentId>().is_ok())
    })
}

async fn launch(
    own: &Places,
    places: &Places,
    options: &StartOptions,
    give_up: Instant,
) -> Result<Launched, ClientError> {
    let settings = serde_json::to_string(&options.options).map_err(|e| ClientError::Start(e.to_string()))?;
    let mut missing = Vec::new();
    for (program, arguments) in &options.programs {
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(places.log())
            .map_err(|error| ClientError::Start(format!("{}: {error}", places.log().display())))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg("--repo")
            .arg(places.repo())
            .arg("--runtime")
            .arg(places.runtime())
            .arg("--base")
            .arg(places.base())
            .arg("--options")
            .arg(&settings)
            .env_clear()
            .envs(&options.environment)
            // A daemon that an agent had to start is nobody's child.
            .env_remove(caliban_contract::variables::AGENT_ID)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        match command.spawn() {
            Ok(mut child) => {
                let Some(word) = child.stdout.take() else {
                    return Err(ClientError::Start("its output cannot be read".to_owned()));
                };
                return wait_ready(own, word, give_up).await;
            }
            Err(error) => missing.push(format!("{}: {error}", program.display())),
        }
    }
    Err(ClientError::Start(missing.join("; ")))
}

/// Waits for the daemon's first word: that it is ready, that there is another, or what went wrong.
async fn wait_ready(
    places: &Places,
    mut word: tokio::process::ChildStdout,
    give_up: Instant,
) -> Result<Launched, ClientError> {
    let mut text = Vec::new();
    let read = async {
        let mut chunk = [0; 1024];
        while !text.ends_with(b"\n") && (text.len() as u64) < WORD_CAP {
            match word.read(&mut chunk).await? {
                0 => break,
                n => text.extend_from_slice(&chunk[..n]),
            }
        }
        std::io::Result::Ok(())
    };
    match timeout_at(give_up, read).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(ClientError::Start(error.to_string())),
        Err(_) => return Err(ClientError::Start(format!("it was not ready within {START_LIMIT:?}"))),
    }
    let said = String::from_utf8_lossy(&text).trim().to_owned();
    match said.as_str() {
        READY => Launched::of(connect(places).await),
        RUNNING_ALREADY => loop {
            match connect(places).await {
                // It has died since: a child that it was starting held its lock for a moment longer.
                Err(ClientError::NotRunning(_)) if !lock::is_held(&places.daemon_lock()) => {
                    return Ok(Launched::Gone);
                }
                Err(ClientError::NotRunning(_)) if Instant::now() < give_up => sleep(LOOK).await,
                other => return Launched::of(other),
            }
        },
        "" => Ok(Launched::Gone),
        other => Err(ClientError::Start(other.to_owned())),
    }
}
