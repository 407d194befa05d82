//! `caliban doctor`: is everything in place, and what to do where it is not.
//!
//! Reads and tries, changes nothing. Each check is a function that returns its own line.

use std::{
    fmt,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use anstyle::{AnsiColor, Style};
use caliban_contract::disk_room;
use caliban_core::fence::Sandbox;
use caliban_providers::ProviderKind;
use clap::Args;
use serde::Serialize;

use super::{AgentFlags, config::print_json};
use crate::{
    Here,
    report::{Code, Result},
    settings::{
        self, Environment, Loaded, Paths, SettingsError,
        known_models::connect,
        provider::{Choice, ModelTarget, ProviderEndpoint, nothing_set},
    },
    trust::{Trust, quoted},
};

/// The oldest git with `merge-tree --write-tree`.
const OLDEST_GIT: (u32, u32) = (2, 38);
/// Below this, sessions cannot be relied on to be written.
const DISK_FAIL_BYTES: u64 = 64 << 20;
/// Below this, worktrees will soon not fit.
const DISK_WARN_BYTES: u64 = 1 << 30;

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban doctor
  caliban doctor --provider ollama --model qwen3
  caliban doctor --json")]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub agent: AgentFlags,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckState {
    Ok,
    Warn,
    Fail,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    #[serde(flatten)]
    finding: Finding,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    state: CheckState,
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

fn ok(found: impl Into<String>) -> Finding {
    Finding { state: CheckState::Ok, found: found.into(), advice: None }
}

fn warn(found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { state: CheckState::Warn, ..fail(found, advice) }
}

fn fail(found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { state: CheckState::Fail, found: found.into(), advice: Some(advice.into()) }
}

impl From<SettingsError> for Finding {
    fn from(error: SettingsError) -> Self {
        Self { state: CheckState::Fail, found: error.to_string(), advice: error.hint }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, color) = match self.finding.state {
            CheckState::Ok => ("ok", AnsiColor::Green),
            CheckState::Warn => ("warn", AnsiColor::Yellow),
            CheckState::Fail => ("fail", AnsiColor::Red),
        };
        let style = Style::new().bold().fg_color(Some(color.into()));
        write!(out, "{style}{word:4}{style:#}  {:9} {}", self.name, self.finding.found)?;
        for line in self.finding.advice.iter().flat_map(|advice| advice.lines()) {
            write!(out, "\n                -> {line}")?;
        }
        Ok(())
    }
}

/// Carries `caliban doctor` out. It fails when one of the checks does.
pub(crate) fn doctor(args: &DoctorArgs, Here { environment, cwd, out }: Here<'_>) -> Result<Code> {
    let mut checks = vec![("git", git(environment)), ("bash", bash(environment))];
    match environment.paths() {
        Ok(paths) => checks.extend([("data", data(&paths)), ("disk", disk(&paths))]),
        Err(error) => checks.push(("data", error.into())),
    }
    match settings::load(environment, cwd, (&args.agent.setup(cwd)).into()) {
        Ok(loaded) => checks.extend([
            ("sandbox", sandbox(&loaded)),
            ("limits", limits(&loaded)),
            ("settings", settings_files(&loaded)),
            ("trust", trust(&loaded)),
            ("provider", provider(&loaded, environment)),
        ]),
        Err(error) => checks.push(("settings", error.into())),
    }
    let checks: Vec<Check> = checks.into_iter().map(|(name, finding)| Check { name, finding }).collect();
    if args.json {
        print_json(out, &checks)?;
    } else {
        for check in &checks {
            writeln!(out, "{check}")?;
        }
    }
    let failed = checks.iter().any(|check| check.finding.state == CheckState::Fail);
    Ok(if failed { Code::Failed } else { Code::Done })
}

fn git(environment: &Environment) -> Finding {
    let install = "install git 2.38 or newer: worktrees, sub-agents and reviews need it";
    let Some(line) = version_line(environment, "git") else {
        return fail("git is not on PATH, or does not run", install);
    };
    match git_version(&line) {
        Some(version) if version >= OLDEST_GIT => ok(line),
        _ => fail(format!("{line} is too old"), install),
    }
}

fn git_version(line: &str) -> Option<(u32, u32)> {
    let mut numbers = line.strip_prefix("git version ")?.split(['.', ' ', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn bash(environment: &Environment) -> Finding {
    match version_line(environment, "bash") {
        Some(line) => ok(line),
        None => fail("bash is not on PATH, or does not run", "install bash: commands run in it"),
    }
}

/// The first line that `PROGRAM --version` prints.
fn version_line(environment: &Environment, program: &str) -> Option<String> {
    let path = environment.find_program(program)?;
    let output =
        Command::new(path).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = caliban_core::inert::line(text.lines().next()?).into_owned();
    output.status.success().then_some(line)
}

fn data(paths: &Paths) -> Finding {
    let shown = paths.data.display();
    // The directory is made when it is first needed: what counts is the part of the path that exists.
    let Some(existing) = paths.data.ancestors().find(|dir| dir.exists()) else {
        return fail(format!("{shown} cannot be made"), "set XDG_DATA_HOME or HOME");
    };
    let writable = existing.is_dir()
        && rustix::fs::access(existing, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok();
    if writable {
        ok(format!("{shown} can be written"))
    } else {
        let advice = format!(
            "make {} writable for you, or set XDG_DATA_HOME to a directory that is",
            existing.display()
        );
        fail(format!("{shown} cannot be written: sessions could not be kept"), advice)
    }
}

fn disk(paths: &Paths) -> Finding {
    let existing = paths.data.ancestors().find(|dir| dir.exists());
    let Some(free) = existing.and_then(disk_room::left) else {
        return warn("the free space is not known", "look with `df -h`");
    };
    let found = format!("{} MiB free at {}", free >> 20, paths.data.display());
    match free {
        _ if free < DISK_FAIL_BYTES => fail(found, "make room: sessions could not be written"),
        _ if free < DISK_WARN_BYTES => warn(found, "make room: worktrees need some"),
        _ => ok(found),
    }
}

/// Tries the fence with a command in it.
fn sandbox(loaded: &Loaded) -> Finding {
    let wanted = loaded.settings.sandbox;
    let words = wanted.map_or("auto, and required for background agents", Sandbox::name);
    if wanted == Some(Sandbox::Off) {
        return ok("commands are not fenced, by the settings: nearly every one asks");
    }
    let own = crate::compose::own_program();
    let tried = match &own {
        Ok(helper) => caliban_fence::tried(helper),
        Err(failure) => Err(failure.to_string()),
    };
    match tried {
        Ok(()) => ok(format!("commands are fenced (tried; sandbox: {words})")),
        Err(reason) => {
            let advice = format!(
                "agents in the background do not start, and in the foreground nearly every command asks\n{}\n\
                 sandbox = \"auto\" in the settings lets background agents start without a fence",
                caliban_fence::remedy(own.as_deref().unwrap_or(Path::new("caliban"))).join("\n")
            );
            let found = format!("commands cannot be fenced: {reason}");
            if wanted == Some(Sandbox::Required) { fail(found, advice) } else { warn(found, advice) }
        }
    }
}

/// What a command and an agent may take, and who holds them to that.
fn limits(loaded: &Loaded) -> Finding {
    let limits = loaded.settings.fleet.tree_limits();
    let watched = caliban_keeper::watched_here(limits);
    let size = |bytes: Option<u64>| bytes.map_or("any".to_owned(), caliban_core::size::in_words);
    let is_fenced = loaded.settings.sandbox != Some(Sandbox::Off);
    let of_command = if is_fenced && !rustix::process::geteuid().is_root() {
        "processes in a fence by the kernel, the rest by a watch"
    } else {
        "by a watch"
    };
    let holder = |what: &str, watched: Option<u64>| match watched {
        Some(_) => format!("{what} by a watch"),
        None => format!("{what} by a control group"),
    };
    ok(format!(
        "at most {} processes, {} of memory and {} of disk for a command ({of_command}); the same processes and memory \
         for a whole background agent ({}, {})",
        limits.pids.map_or("any number of".to_owned(), |pids| pids.to_string()),
        size(limits.memory),
        size(limits.disk),
        holder("processes", watched.pids),
        holder("memory", watched.memory),
    ))
}

fn settings_files(loaded: &Loaded) -> Finding {
    let user = loaded.paths.user_settings();
    let Ok(metadata) = user.metadata() else {
        return ok(format!("{} is absent: defaults", user.display()));
    };
    let holds_key = ProviderKind::all().any(|provider| {
        let set = loaded.settings.providers.api(provider).is_some_and(|api| api.api_key.is_some());
        let source = loaded.source_of(&["providers", provider.name(), "api_key"]);
        set && matches!(&source, settings::Source::File { path, .. } if *path == user)
    });
    if holds_key && metadata.permissions().mode() & 0o077 != 0 {
        let found = format!("{} holds a key and others can read it", user.display());
        return warn(found, format!("chmod 600 {}", quoted(&user.display().to_string())));
    }
    ok(format!("{} is in order", user.display()))
}

fn trust(loaded: &Loaded) -> Finding {
    match (&loaded.trust, loaded.trust.note(&loaded.root)) {
        (Trust::NoFiles, _) => ok("this repo has no settings of its own"),
        (Trust::Trusted(files), _) => ok(format!("trusted: {}", files.names().join(", "))),
        (Trust::Untrusted(_) | Trust::Changed(_), note) => {
            let advice = format!("caliban trust {}", quoted(&loaded.root.display().to_string()));
            warn(note.unwrap_or_default(), advice)
        }
    }
}

fn provider(loaded: &Loaded, environment: &Environment) -> Finding {
    match loaded.choose() {
        Err(error) => error.into(),
        Ok(Choice::Use(target)) => reach(&target, environment),
        Ok(Choice::IfRunning(target)) => match reach(&target, environment) {
            finding if finding.state == CheckState::Ok => finding,
            _ => nothing_set().into(),
        },
    }
}

/// Whether somebody listens at the provider's address. Sends nothing, so a wrong key is not noticed here.
fn reach(target: &ModelTarget, environment: &Environment) -> Finding {
    let provider = target.provider.value;
    let ProviderEndpoint::Http { base_url, key } = &target.endpoint else {
        return match &target.endpoint {
            ProviderEndpoint::Script(Some(script)) if !script.value.is_file() => fail(
                format!("the script {} is not there", script.value.display()),
                format!("it is named by: {}", script.source),
            ),
            _ => ok("scripted: answers come from a script"),
        };
    };
    let key = if key.is_some() { "key set" } else { "no key" };
    let url = base_url.value.as_str();
    let proxy = environment.proxy();
    let proxied = !is_loopback(url)
        && if url.starts_with("https") { proxy.https.is_some() } else { proxy.http.is_some() };
    if proxied {
        return ok(format!("{provider} at {url}, {key}, through a proxy (not tried)"));
    }
    match connect(url) {
        Ok(()) => ok(format!("{provider} at {url} answers, {key}")),
        Err(reason) => fail(
            format!("{provider} at {url} cannot be reached: {reason}"),
            format!("check the network and the address (it is set by: {})", base_url.source),
        ),
    }
}

/// Whether an address is on this machine: such ones never go through a proxy.
fn is_loopback(url: &str) -> bool {
    match url::Url::parse(url).ok().and_then(|url| url.host().map(|host| host.to_owned())) {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_versions_are_read() {
        assert_eq!(git_version("git version 2.47.3"), Some((2, 47)));
        assert_eq!(git_version("git version 2.39.5 (Apple Git-154)"), Some((2, 39)));
        assert_eq!(git_version("git version 2.50-rc1"), Some((2, 50)));
        assert_eq!(git_version("hub"), None);
    }

    #[test]
    fn a_check_says_what_to_do_below_what_was_found() {
        let check = Check { name: "git", finding: fail("too old", "install it\nsoon") };
        assert_eq!(
            anstream::adapter::strip_str(&check.to_string()).to_string(),
            "fail  git       too old\n                -> install it\n                -> soon"
        );
    }
}
