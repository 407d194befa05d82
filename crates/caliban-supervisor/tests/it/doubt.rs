//! Runs in doubt: a shim was launched, and nobody heard what became of it. They are settled before anything else is
//! said of their agents.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_fleet::Client;
use caliban_fleet::protocol::{ResumeRequest, RmRequest};

use crate::fleet::{Fleet, caliband, processes_of, quick, wait_until, write};

/// The program that a daemon starts its shims from, in a place where another can be put.
pub(crate) struct Shim(PathBuf);

impl Shim {
    /// From now on daemons of this fleet start from a copy.
    pub(crate) fn of(fleet: &mut Fleet) -> Self {
        let path = fleet.temp.path().join("caliband");
        fs::copy(caliband(), &path).unwrap();
        fleet.start.programs = vec![(path.clone(), Vec::new())];
        Self(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }

    /// Shims that are started from now on do this.
    fn becomes(&self, script: &str) {
        let new = self.0.with_extension("new");
        write(&new, &format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(&new, fs::Permissions::from_mode(0o700)).unwrap();
        fs::rename(new, &self.0).unwrap();
    }

    /// They are what they were.
    fn is_sound_again(&self) {
        self.becomes(&format!("exec {} \"$@\"", caliband().display()));
    }
}

/// A fleet whose daemon died after it had launched the shim of an agent, and before that did anything. The next
/// daemon is there, its only place is taken by the first of the two; then the shim goes on.
async fn in_doubt() -> (Fleet, Client, AgentId, AgentId) {
    let mut fleet = Fleet::new();
    let shim = Shim::of(&mut fleet);
    let mut client = fleet.client().await;
    let first = fleet.spawn_up(&mut client, "hang").await;
    let (launched, gate) = (fleet.temp.path().join("launched"), fleet.temp.path().join("gate"));
    shim.becomes(&format!(
        ": > {}; while [ ! -e {} ]; do sleep 0.01; done; exec {} \"$@\"",
        launched.display(),
        gate.display(),
        caliband().display()
    ));
    let id = fleet.spawn(&mut client, "serve").await;
    wait_until("its shim is launched", || launched.exists());
    fleet.kill_daemon();
    shim.is_sound_again();
    fleet.start.programs = vec![(caliband(), Vec::new())];
    fleet.start.options.max_running = 1;
    let client = fleet.client().await;
    write(&gate, "");
    wait_until("the late shim has left, or its worker runs", || {
        fleet.runs(id) > 0 || processes_of(&id.to_string()).is_empty()
    });
    (fleet, client, first, id)
}

#[tokio::test]
async fn a_run_in_doubt_is_settled_before_its_agent_is_called_killed_or_removed() {
    let (fleet, mut client, _first, id) = in_doubt().await;
    let name = id.to_string();
    fleet.until_row(&mut client, id, |row| row.queued_behind == Some(0)).await;
    assert_eq!(client.kill(&name, &quick()).await.unwrap().state, State::Killed);
    assert_eq!(processes_of(&name), Vec::<i32>::new());
    client.rm(&name, RmRequest::default()).await.unwrap();
}

#[tokio::test]
async fn an_agent_whose_run_was_in_doubt_runs_once_and_can_be_reached() {
    let (fleet, mut client, first, id) = in_doubt().await;
    client.kill(&first.to_string(), &quick()).await.unwrap();
    fleet.until_row(&mut client, id, |row| row.state == State::Idle && row.pid.is_some()).await;
    assert_eq!(fleet.ask(id, "say 1 hello").as_deref(), Some("has it"));
    assert_eq!((fleet.runs(id), fleet.lines(id, "doubled")), (1, Vec::new()));
}

#[tokio::test]
async fn a_shim_that_ends_without_a_word_leaves_nothing_behind_and_its_agent_is_started_again() {
    let mut fleet = Fleet::new();
    let shim = Shim::of(&mut fleet);
    let mut client = fleet.client().await;
    shim.becomes("sleep 600 > /dev/null 2>&1 & exit 1");
    let killed = fleet.spawn(&mut client, "serve").await;
    let note = |text: &str| text.starts_with("the shim ended without a word");
    fleet.until_row(&mut client, killed, |row| row.note.as_deref().is_some_and(note)).await;
    assert_eq!(client.kill(&killed.to_string(), &quick()).await.unwrap().state, State::Killed);
    assert_eq!(processes_of(&killed.to_string()), Vec::<i32>::new());
    let other = fleet.spawn(&mut client, "serve").await;
    fleet.until_row(&mut client, other, |row| row.note.as_deref().is_some_and(note)).await;
    shim.is_sound_again();
    fleet.until_row(&mut client, other, |row| row.state == State::Idle && row.pid.is_some()).await;
    assert_eq!((fleet.runs(other), fleet.lines(other, "doubled")), (1, Vec::new()));
    let left = processes_of(&other.to_string());
    let known = fleet.shim(other);
    assert!(left.iter().all(|pid| *pid == known.pid || Some(*pid) == known.worker_pid), "{left:?}");
}

#[tokio::test]
async fn a_kill_during_a_start_that_fails_does_not_end_the_next_run() {
    let mut fleet = Fleet::new();
    let shim = Shim::of(&mut fleet);
    let mut client = fleet.client().await;
    let (launched, gate) = (fleet.temp.path().join("launched"), fleet.temp.path().join("gate"));
    shim.becomes(&format!(
        ": > {}; while [ ! -e {} ]; do sleep 0.01; done; exit 1",
        launched.display(),
        gate.display()
    ));
    let id = fleet.spawn(&mut client, "serve").await;
    wait_until("its shim is launched", || launched.exists());
    let (name, mut other, quick) = (id.to_string(), fleet.client().await, quick());
    let open = async {
        // Answered after the kill was taken: both go to the one who decides.
        other.show(&name).await.unwrap();
        write(&gate, "");
    };
    let (killed, ()) = tokio::join!(client.kill(&name, &quick), open);
    assert_eq!(killed.unwrap().state, State::Killed);
    shim.is_sound_again();
    client.resume(&name, &ResumeRequest::default()).await.unwrap();
    fleet.until_row(&mut client, id, |row| row.state == State::Idle && row.pid.is_some()).await;
    assert_eq!(fleet.ask(id, "say 1 hello").as_deref(), Some("has it"));
    assert!(!fleet.log().contains("ending its run"), "{}", fleet.log());
}
