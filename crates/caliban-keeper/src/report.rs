//! What a reaper reports about a shell command when its tree is gone.

use caliban_contract::records::ToldBy;
use caliban_contract::tree_limits::Excess;
use rustix::process::{Signal, WaitStatus};
use serde::{Deserialize, Serialize};

/// The last message of a reaper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// How the main process ended.
    pub outcome: ExitOutcome,
    /// How many processes the command left running; they were ended.
    pub left: usize,
    /// The names of some of them.
    pub names: Vec<String>,
    /// How many processes could not be ended.
    pub stuck: usize,
    /// The shell's last working directory; empty when that is gone, none when the shell did not report one.
    pub cwd: Option<Vec<u8>>,
    /// Where the kernel ended a process for want of memory meanwhile.
    pub out_of_memory: Option<ToldBy>,
    /// Whether it never ran, because something in its fence was not what had been judged.
    #[serde(default)]
    pub is_changed: bool,
    /// What it took too much of, for which it was ended.
    #[serde(default)]
    pub exceeded: Option<Excess>,
}

/// How the main process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitOutcome {
    /// With this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It never ran, for this reason.
    NotStarted(String),
}

impl ExitOutcome {
    pub(crate) fn of(status: Option<WaitStatus>) -> Self {
        match status.map(|status| (status.exit_status(), status.terminating_signal())) {
            Some((Some(code), _)) => Self::Exited(code),
            Some((None, Some(signal))) => Self::Killed(signal),
            Some((None, None)) => Self::NotStarted("ended in an unknown way".into()),
            // It could not be killed.
            None => Self::Killed(Signal::KILL.as_raw()),
        }
    }
}

impl Report {
    /// A report of nothing but how the main process ended.
    pub(crate) fn bare(outcome: ExitOutcome) -> Self {
        Self {
            outcome,
            left: 0,
            names: Vec::new(),
            stuck: 0,
            cwd: None,
            out_of_memory: None,
            is_changed: false,
            exceeded: None,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads it; none when the reaper was killed before it could report.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_comes_through_unchanged() {
        let report = Report {
            outcome: ExitOutcome::Killed(9),
            left: 2,
            names: vec!["sleep".into()],
            stuck: 1,
            cwd: Some(b"/\xff".to_vec()),
            out_of_memory: Some(ToldBy::Group),
            is_changed: true,
            exceeded: Some(Excess::Disk(7)),
        };
        assert_eq!(Report::decode(&report.encode()), Some(report));
        assert_eq!(Report::decode(b"thread panicked"), None);
    }
}
