//! The daemon as a process: its arguments, its one lock, its log, and its first word to whoever started it.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit};

use crate::daemon;
use crate::daemon_options::DaemonOptions;
use crate::lock::{self, HeldLock};
use crate::places::Places;
use crate::protocol::{READY, RUNNING_ALREADY};

/// How long a daemon that is leaving may hold the lock.
const LOCK_LIMIT: Duration = Duration::from_secs(25);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// What a daemon is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonArgs {
    /// Where everything is.
    pub places: Places,
    /// Its settings.
    pub options: DaemonOptions,
}

impl DaemonArgs {
    /// From a command line: `--repo DIR --runtime DIR --base DIR [--options JSON]`.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let (mut repo, mut runtime, mut base, mut options) = (None, None, None, DaemonOptions::default());
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("no value for {}", name.display()))?;
            match name.to_str() {
                Some("--repo") => repo = Some(PathBuf::from(value)),
                Some("--runtime") => runtime = Some(PathBuf::from(value)),
                Some("--base") => base = Some(PathBuf::from(value)),
                Some("--options") => {
                    let text = value.to_str().ok_or("--options is not text")?;
                    options = serde_json::from_str(text).map_err(|error| {
                        format!("--options: {error}; are caliban and caliband of the same version?")
                    })?;
                }
                _ => return Err(format!("the daemon does not know {}", name.display())),
            }
        }
        let (Some(repo), Some(runtime), Some(base)) = (repo, runtime, base) else {
            return Err("--repo, --runtime and --base are needed together".to_owned());
        };
        let places = Places::exactly(repo, runtime, base).map_err(|error| error.to_string())?;
        Ok(Self { places, options })
    }
}

/// Runs the daemon with the arguments after the mode; returns when it was asked to leave. To be called before the process
/// has opened anything: whatever is open is whoever's started it, and is closed.
pub fn daemon_main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match DaemonArgs::parse(args) {
        Ok(args) => run_daemon(&args),
        Err(text) => {
            say(&text);
            ExitCode::from(2)
        }
    }
}

/// Like [`daemon_main`], with arguments that were read already.
pub fn run_daemon(args: &DaemonArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            tracing::error!("{text}");
            say(&text);
            ExitCode::FAILURE
        }
    }
}

/// One line to whoever started us. Nobody may be listening.
fn say(line: &str) {
    let line = line.replace('\n', " ");
    let _nobody_listens = writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush());
}

fn run(args: &DaemonArgs) -> Result<(), String> {
    // Keys of agents come with the requests for them. What a shell has set is not for the git that runs here.
    caliban_fence::drop_secrets(|_| false);
    close_inherited();
    // Fails when we lead a group already: then we are no terminal's child either, or a person started us.
    let _leader_already = rustix::process::setsid();
    caliban_keeper::leave_agent();
    // Not earlier: a process that hides cannot take its OOM score back. It has no key yet.
    crate::process::hide();
    let places = &args.places;
    places.prepare().map_err(|error| format!("{error} (hint: {})", error.hint()))?;
    let Some(mut held) = take_lock(places)? else {
        say(RUNNING_ALREADY);
        return Ok(());
    };
    daemon::log::install(places.log());
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let start_time = crate::process::stat(own).ok_or("/proc cannot be read")?.start_time;
    let who = lock::holder_line(own, start_time);
    held.say(&who, None).map_err(|error| format!("{}: {error}", places.daemon_lock().display()))?;
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(Duration::from_secs(2))
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    let outcome = runtime.block_on(daemon::serve(places, &args.options, (held, &who), || say(READY)));
    // What still runs on other threads is a read or a start that the next daemon repeats.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome.map(drop)
}

/// Closes what whoever started us had open beside the three that we were given: a script's lock, say, which we would hold
/// for ever, and with us every agent. Best effort: without `/proc` nobody knows what is open.
fn close_inherited() {
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number > STDERR)
        .collect();
    for number in open {
        // That of the directory itself is closed already.
        let _closed_already = nix::unistd::close(number);
    }
}

/// The last of the three files that every process is given.
const STDERR: i32 = 2;

/// Starts and looks at files wait on these; the owner of the fleet never does. More than removals of worktrees and hunts
/// for strays take together, so that neither holds up a start.
const BLOCKING_THREADS: usize = 8;

/// After this time a daemon that holds the lock and does not listen is asked to leave. One that is leaving takes no
/// notice; one whose socket was taken away has had the time to listen again.
const ASK_TO_LEAVE: Duration = Duration::from_secs(18);

/// The lock for life; none when another daemon answers, here or where it says.
fn take_lock(places: &Places) -> Result<Option<HeldLock>, String> {
    let path = places.daemon_lock();
    let since = Instant::now();
    let mut asked = false;
    loop {
        let taken = HeldLock::try_take(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if taken.is_some() {
            return Ok(taken);
        }
        let elsewhere = lock::socket(&path);
        if [Some(places.socket()), elsewhere]
            .into_iter()
            .flatten()
            .any(|socket| std::os::unix::net::UnixStream::connect(socket).is_ok())
        {
            return Ok(None);
        }
        if since.elapsed() > ASK_TO_LEAVE && !asked {
            asked = true;
            if let Ok(Some((_, process))) = lock::process(&path) {
                let _gone_already =
                    rustix::process::pidfd_send_signal(process, rustix::process::Signal::TERM);
            }
        }
        if since.elapsed() > LOCK_LIMIT {
            let who = lock::holder(&path).unwrap_or_else(|| "unknown".to_owned());
            return Err(format!("another daemon ({who}) holds {} and does not listen", path.display()));
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// As many open files as a daemon may need; not more, because what it starts inherits the limit.
const FILES: u64 = 16 * 1024;

/// Each living agent costs a descriptor.
fn raise_file_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(FILES, |hard| hard.min(FILES)).max(limit.current.unwrap_or(FILES));
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!("the limit of open files stays at {:?}: {error}", limit.current);
    }
}
