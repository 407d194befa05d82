//! What runs in a pane, from `/proc`.
//!
//! Owns two questions: is this still the same process (pid, start time and boot), and does the expected coding agent
//! receive the terminal's keys. Without `/proc` both answers are no, and nothing is typed.

use std::fs;
use std::path::Path;

use caliban_process::{Stat, boot_id};
use rustix::fs::readlink;

use super::backend::Backend;

/// Programs that run a coding agent's script under their own name.
const INTERPRETERS: [&str; 4] = ["node", "nodejs", "bun", "deno"];

/// When a process started, in a form that no other process with this pid ever shares; `None` if it is gone or a zombie.
pub(crate) fn started(pid: i64) -> Option<String> {
    Some(stat(pid).filter(|stat| !stat.is_over())?.started(&boot_id().ok()?))
}

/// The id of the present boot.
pub(crate) fn boot() -> Option<String> {
    boot_id().ok()
}

/// Our own process in a form that identifies it uniquely, for a row of the store.
pub(crate) fn own() -> Option<String> {
    let pid = i64::from(std::process::id());
    Some(format!("{pid}@{}", started(pid)?))
}

/// The pid of a process named by [`own`], if it still runs.
pub(crate) fn living(named: &str) -> Option<i64> {
    let (pid, began) = named.split_once('@')?;
    let pid = pid.parse().ok()?;
    (started(pid)? == began).then_some(pid)
}

/// The processes of the coding agent that are in the foreground of the terminal `tty`, given the pane's first process.
/// Standard input and output must be that terminal: in `claude | less` the keys go to `less`.
pub(crate) fn foreground_agents(pane_pid: i64, tty: &str, backend: &Backend) -> Vec<i64> {
    let Some(group) = stat(pane_pid).map(|stat| stat.foreground_group) else { return Vec::new() };
    caliban_process::all()
        .map(i64::from)
        .filter(|pid| stat(*pid).is_some_and(|stat| stat.group == group))
        .filter(|pid| is_agent(*pid, backend) && uses_terminal(*pid, tty))
        .collect()
}

/// Pids are wider in the store than the system's.
fn stat(pid: i64) -> Option<Stat> {
    caliban_process::stat(i32::try_from(pid).ok()?)
}

fn is_agent(pid: i64, backend: &Backend) -> bool {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let args: Vec<&str> =
        cmdline.split(|byte| *byte == 0).map(|arg| std::str::from_utf8(arg).unwrap_or_default()).collect();
    names_agent(comm.trim_end(), &args, backend)
}

/// Whether a process is the agent, by its own name, by its `argv[0]`, or by its script.
fn names_agent(comm: &str, args: &[&str], backend: &Backend) -> bool {
    let name = backend.name;
    let called = args.first().map_or("", |arg| base(arg));
    if comm == name || called == name {
        return true;
    }
    let script = args.iter().skip(1).find(|arg| !arg.starts_with('-')).copied().unwrap_or_default();
    INTERPRETERS.contains(&called)
        && (base(script).strip_suffix(".js").unwrap_or(base(script)) == name
            || (!backend.package.is_empty() && script.contains(backend.package)))
}

fn uses_terminal(pid: i64, tty: &str) -> bool {
    [0, 1].iter().all(|fd| {
        readlink(format!("/proc/{pid}/fd/{fd}"), Vec::new())
            .is_ok_and(|link| link.as_bytes() == tty.as_bytes())
    })
}

fn base(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::backend::Backend;
    use super::{living, names_agent, own, started};

    #[test]
    fn an_agent_is_known_by_name_call_or_script() {
        let check = |comm: &str, args: &[&str], name: &str| {
            names_agent(comm, args, Backend::named(name).expect("a row"))
        };
        assert!(check("claude", &["claude"], "claude"));
        assert!(check("2.1.325", &["/home/u/.local/bin/claude", "--x"], "claude"));
        assert!(check("node", &["node", "/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js"], "claude"));
        assert!(check("node", &["/usr/bin/node", "--no-warnings", "/usr/local/bin/codex"], "codex"));
        assert!(check("MainThread", &["node", "/x/bin/codex.js"], "codex"));
        assert!(!check("bash", &["bash", "claude"], "claude"));
        assert!(!check("vim", &["vim", "claude"], "claude"));
        assert!(!check("node", &["node", "server.js"], "claude"));
        assert!(!check("codex", &["codex"], "claude"));
    }

    #[test]
    fn a_start_time_is_stable_and_ends_with_the_process() {
        let pid = i64::from(std::process::id());
        assert_eq!(started(pid), started(pid));
        assert!(started(pid).is_some());
        assert_eq!(started(i64::MAX), None);
        let named = own().expect("a name");
        assert_eq!(living(&named), Some(pid));
        assert_eq!(living(&format!("{named}0")), None);
        assert_eq!(living("x"), None);
    }
}
