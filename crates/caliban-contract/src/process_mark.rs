//! A mark that every process beneath an agent, a command of one, or a member of a team has and cannot take off: a hard limit on time under
//! real-time scheduling.
//!
//! The limit is a hundred thousand years, so it limits nothing. It is inherited through forks, programs, `setsid`, a cleared
//! environment and namespaces, and only who has `CAP_SYS_RESOURCE` on the machine itself can raise a hard limit again (root in a
//! user namespace of one's own cannot). It says that an agent may stand above, where the processes above cannot be seen; it does
//! not say which. Whoever lowers it further is taken for an agent's, which may be less than a member's.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Microseconds, for agents of the fleet.
const AGENT: u64 = 1 << 62;
/// Above the other: from a member's mark to an agent's one can go, and not back.
const MEMBER: u64 = AGENT + 1;
/// Above both, because the broker takes it for a person's.
const COMMAND: u64 = AGENT + 2;

/// Beneath whom a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentMark {
    /// An agent of the fleet.
    Agent,
    /// A member of a broker's team, in its pane.
    Member,
    /// A command of an agent in the foreground.
    Command,
}

/// Marks this process and all that it starts from now on. A mark that is there stays.
///
/// # Errors
/// When the system refuses; then a process beneath is not told from a person's in a pid namespace.
pub fn put(mark: AgentMark) -> std::io::Result<()> {
    if found().is_some() {
        return Ok(());
    }
    let limit = match mark {
        AgentMark::Agent => AGENT,
        AgentMark::Member => MEMBER,
        AgentMark::Command => COMMAND,
    };
    setrlimit(Resource::Rttime, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    Ok(())
}

/// The mark that this process has.
#[must_use]
pub fn found() -> Option<AgentMark> {
    getrlimit(Resource::Rttime).maximum.map(named)
}

/// The mark of another process. A process shows its limits even when it hides its descriptors and memory.
///
/// # Errors
/// When the process is gone or hidden, or the kernel does not say.
pub fn of(pid: i32) -> std::io::Result<Option<AgentMark>> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"));
    match line.and_then(|line| line.split_whitespace().nth(1)) {
        Some("unlimited") => Ok(None),
        Some(hard) => hard.parse().map(|limit| Some(named(limit))).map_err(std::io::Error::other),
        None => Err(std::io::Error::other("its limits are not told")),
    }
}

fn named(limit: u64) -> AgentMark {
    match limit {
        MEMBER => AgentMark::Member,
        COMMAND => AgentMark::Command,
        _ => AgentMark::Agent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a19_the_mark_of_another_process_is_told() {
        for (limit, mark) in
            [(AGENT, AgentMark::Agent), (MEMBER, AgentMark::Member), (COMMAND, AgentMark::Command)]
        {
            let mut marked = std::process::Command::new("prlimit")
                .arg(format!("--rttime={limit}"))
                .args(["sh", "-c", "echo; read -r end"])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let out = marked.stdout.as_mut().unwrap();
            std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut String::new()).unwrap();
            let pid = i32::try_from(marked.id()).unwrap();
            assert_eq!(of(pid).unwrap(), Some(mark));
            drop(marked.stdin.take());
            marked.wait().unwrap();
            assert!(of(pid).is_err());
        }
        assert_eq!(of(i32::try_from(std::process::id()).unwrap()).unwrap(), found());
    }
}
