//! Starts that fail for a reason that passes: tried again by themselves, and nobody is `failed` for it.

use std::os::unix::fs::PermissionsExt as _;

use caliban_contract::records;
use caliban_core::lifecycle::{Ending, State};
use caliban_core::spec::SpawnSpec;
use caliban_fleet::protocol::ResumeRequest;

use crate::faults::Small;
use crate::fleet::{Fleet, caliband, fake_worker, quick};

/// Bytes of a page, of which a small file takes one.
const PAGE: u64 = 4096;
/// With so many pages left everything can be written that a start writes.
const ENOUGH: u64 = 8;

#[tokio::test]
async fn r11_on_a_nearly_full_disk_who_waits_for_a_place_waits_for_room_too() {
    let Some((mut fleet, small)) = Small::fleet() else { return };
    fleet.start.options.max_running = 1;
    let mut client = fleet.client().await;
    let mut notes = Vec::new();
    for pages in 0..ENOUGH {
        let gate = fleet.temp.path().join(format!("gate-{pages}"));
        let first = fleet.spawn_up(&mut client, &format!("gate-exit:{}", gate.display())).await;
        let waits = fleet.spawn(&mut client, "mute").await;
        small.fill();
        let filler = std::fs::OpenOptions::new().write(true).open(small.filler()).unwrap();
        filler.set_len(filler.metadata().unwrap().len() - pages * PAGE).unwrap();
        drop(filler);
        crate::fleet::write(&gate, "");
        fleet.until_state(&mut client, first, State::Failed).await;
        let exit = fleet.places.agent_dir(first).join(records::EXIT);
        assert_eq!(std::fs::metadata(exit).unwrap().permissions().mode() & 0o777, 0o600);
        // It is tried, and says why it does not begin, or begins.
        let tried = |row: &caliban_fleet::protocol::AgentRow| {
            row.note.is_some() || row.pid.is_some() || row.state != State::Spawning
        };
        notes.extend(fleet.until_row(&mut client, waits, tried).await.note);
        small.make_room();
        let row = fleet.until_row(&mut client, waits, |row| row.state != State::Spawning).await;
        // A worker may find no room for its own files; but there is one.
        if let Some(Ending::Error { text }) = &row.ending {
            assert!(text.starts_with("the worker ended with code "), "{pages} pages: {text}");
        }
        client.kill(&waits.to_string(), &quick()).await.unwrap();
    }
    let is_shims =
        |note: &String| ["exit.json", "shim.json", "shim.lock"].iter().any(|file| note.contains(file));
    assert!(notes.iter().any(is_shims), "no shim was without room: {notes:#?}");
}

#[test]
fn r13_a_shim_without_descriptors_says_that_it_passes() {
    let fleet = Fleet::new();
    let dir = fleet.temp.path().join("0000abcd");
    std::fs::create_dir(&dir).unwrap();
    let shim = |limit: u32| {
        let said = std::process::Command::new("prlimit")
            .arg(format!("--nofile={limit}:{limit}"))
            .arg(caliband())
            .arg(caliban_contract::modes::SHIM)
            .arg(&dir)
            .args(["--nonce", "n", "--grace-ms", "200", "--program"])
            .arg(fake_worker())
            .arg("--cwd")
            .arg(fleet.temp.path())
            .arg("--socket")
            .arg(dir.join("s"))
            .env("FAKE", "done")
            .output()
            .unwrap();
        // With fewer descriptors than its libraries need it does not come to say anything.
        serde_json::from_slice::<serde_json::Value>(&said.stdout).ok()
    };
    // The first limits are too low for the shim itself, the next for a worker; at the end there is enough.
    let mut limit = 4;
    let mut words = std::collections::BTreeSet::new();
    loop {
        limit += 1;
        let Some(word) = shim(limit) else { continue };
        if word["word"] == "error" {
            assert_eq!(word["again"], "soon", "{limit}: {word}");
            words.insert("error");
        } else if word["worker_pid"].is_null() {
            let exit: records::ExitRecord = records::read(&dir, records::EXIT).unwrap();
            assert_eq!(exit.again, records::Again::Soon, "{limit}: {exit:?}");
            words.insert("no worker");
        } else {
            break;
        }
        std::fs::remove_file(dir.join(records::SHIM)).ok();
    }
    assert_eq!(words.into_iter().collect::<Vec<_>>(), ["error", "no worker"]);
}

#[tokio::test]
async fn a_request_that_a_power_failure_emptied_is_written_anew_from_the_registry() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, id, State::Done).await;
    let file = fleet.places.agent_dir(id).join(records::SPEC);
    let before = std::fs::read_to_string(&file).unwrap();
    let stale = serde_json::to_string(&SpawnSpec::new("something else", "/")).unwrap();
    for (runs, found) in [(2, ""), (3, stale.as_str())] {
        crate::fleet::write(&file, found);
        client.resume(&id.to_string(), &ResumeRequest::default()).await.unwrap();
        fleet.until_row(&mut client, id, |row| (row.state, row.runs) == (State::Done, runs)).await;
        assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    }
}
