//! The process at the other end of a connection. Its pid is only given out for as long as it is that process's: another
//! process may have the pid of one that connected and ended (r04).

use caliban_acp::extension::Behalf;
use tokio::net::UnixStream;

use crate::ancestry;
use crate::protocol::{ApiError, ErrorCode};

/// The pid of no process: whoever looks at what stands above it finds nothing, and trusts nobody.
const NOBODY: i32 = 0;

/// A process of our own user.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    /// None in another pid namespace.
    pid: Option<i32>,
    /// When it was started; none when it is gone or hidden.
    start_time: Option<u64>,
}

impl Peer {
    /// The caller, when it belongs to our own user (a01).
    pub(super) fn of(stream: &UnixStream) -> Option<Self> {
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == rustix::process::getuid().as_raw() => {
                let pid = peer.pid();
                Some(Self { pid, start_time: pid.and_then(started) })
            }
            Ok(peer) => {
                tracing::warn!(uid = peer.uid(), "a connection of another user was refused");
                None
            }
            Err(error) => {
                tracing::warn!("a connection of an unknown user was refused: {error}");
                None
            }
        }
    }

    /// The pid for a look at the processes above: [`NOBODY`] when the process has ended or cannot be seen from here.
    pub(super) fn pid_now(self) -> i32 {
        let is_same = |pid: &i32| self.start_time.is_some() && started(*pid) == self.start_time;
        self.pid.filter(is_same).unwrap_or(NOBODY)
    }

    /// The pid that it had when it connected. Only for counting connections by process: it may belong to another one now.
    pub(super) fn pid_then(self) -> Option<i32> {
        self.pid
    }

    /// Refuses a process of an agent, and one that cannot be seen (a11, a19), what only a person does.
    pub(super) fn check_person(self, what: &str, hint: &str) -> Result<(), ApiError> {
        let Some(who) = ancestry::above(self.pid_now()).agent_in_words() else { return Ok(()) };
        let text = format!("{who} cannot {what}: a person does");
        Err(ApiError::new(ErrorCode::Forbidden, text).hint(hint))
    }

    /// The process, for an agent to judge.
    pub(super) fn behalf(self) -> Option<Behalf> {
        Some(Behalf { pid: self.pid?, start_time: self.start_time? })
    }
}

fn started(pid: i32) -> Option<u64> {
    caliban_process::stat(pid).map(|stat| stat.start_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r04_a_reused_pid_does_not_pass_for_the_process_that_connected() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let start_time = started(pid).unwrap();
        let pid_now = |start_time| Peer { pid: Some(pid), start_time }.pid_now();
        assert_eq!(pid_now(Some(start_time)), pid);
        // Another process has the pid now, or the caller had ended before its start time was read.
        assert_eq!(pid_now(Some(start_time - 1)), NOBODY);
        assert_eq!(pid_now(None), NOBODY);
        // Nor does a process of another pid namespace.
        assert_eq!(Peer { pid: None, start_time: None }.pid_now(), NOBODY);
        // Nobody takes any of these for a person.
        assert!(crate::ancestry::above(NOBODY).agent_in_words().is_some());
    }
}
