//! `caliband`: the supervisor of one repo's agents.
//!
//! Clients start it with all places given. A person may start it by hand in a repo: then, and only here, the
//! environment is read for where things are.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use caliban_contract::{DaemonOptions, PlaceSources, Places, modes};
use caliban_supervisor::{DaemonArgs, daemon_main, run_daemon, shim_main};

const HELP: &str = "\
caliband: the supervisor of one repo's background agents

Any `caliban agents` command and `caliban --bg` start it when needed; nobody has to launch it by hand.

Usage: caliband                      runs the daemon of the repo that the current directory is in
       caliband --repo DIR --runtime DIR --base DIR [--options JSON]
                                     runs a daemon with all places given (as clients do)

Options:
      --repo DIR      the root of the repo
      --runtime DIR   the directory of sockets and secrets
      --base DIR      the directory of registry, log and agents
      --options JSON  settings: max_running, grace_ms, sweep (remove, off), keep_worktrees
  -h, --help          print this
  -V, --version       print the version

Examples:
  caliban daemon status          # what it does; `caliban daemon restart` replaces it
  cd project && caliband         # in the foreground, by hand

Its log is daemon.log in the base directory. It leaves on TERM, INT or `caliban daemon stop`; agents live on.
";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    let first = args.peek().and_then(|arg| arg.to_str()).map(str::to_owned);
    match first.as_deref() {
        Some(modes::SHIM) => {
            caliban_fence::hide_environment();
            shim_main(args.skip(1))
        }
        // Git reads what an agent made only in a fence, also when the daemon lands or removes it.
        Some(modes::FENCE) => caliban_fence::fence_main(&args.skip(1).collect::<Vec<_>>()),
        Some("-h" | "--help") => print(HELP),
        Some("-V" | "--version") => print(concat!("caliband ", env!("CARGO_PKG_VERSION"), "\n")),
        Some(_) => daemon_main(args),
        None => match here() {
            Ok(args) => run_daemon(&args),
            Err(text) => {
                let _nobody_reads = writeln!(std::io::stderr(), "caliband: {text}");
                ExitCode::FAILURE
            }
        },
    }
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The daemon of the repo that we are in.
fn here() -> Result<DaemonArgs, String> {
    let directory = std::env::current_dir().map_err(|error| format!("no current directory: {error}"))?;
    let home = variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let xdg = variable("XDG_DATA_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let data = xdg
        .or_else(|| home.map(|home| home.join(".local/share")))
        .ok_or("neither XDG_DATA_HOME nor HOME is set; there is no place for data")?;
    let sources = PlaceSources {
        daemon_runtime_dir: variable("CALIBAN_DAEMON_RUNTIME_DIR").map(PathBuf::from),
        xdg_runtime_dir: variable("XDG_RUNTIME_DIR").map(PathBuf::from),
        tmpdir: variable("TMPDIR").map(PathBuf::from),
        data: data.join("caliban"),
    };
    let places =
        Places::find(&directory, &sources).map_err(|error| format!("{error} (hint: {})", error.hint()))?;
    Ok(DaemonArgs { places, options: DaemonOptions::default() })
}

#[expect(clippy::disallowed_methods, reason = "the one place where this binary reads its environment")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
