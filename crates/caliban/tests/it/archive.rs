//! What is kept of agents that are gone: their transcripts and answers, until they are too old or too many (r21).

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{StepExt, script, text, wait_until};

use crate::fleet::{Fleet, bash};

impl Fleet {
    fn archived(&self) -> Vec<Value> {
        self.run(["sessions", "list", "--archived", "--json"]).ok().json()
    }

    fn archived_ids(&self) -> Vec<String> {
        self.archived().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    }

    /// The directory of an agent, and that of its fleet.
    fn places_of(&self, id: &str) -> (PathBuf, PathBuf) {
        let dir = PathBuf::from(self.row(id)["dir"].as_str().unwrap());
        let base = dir.ancestors().nth(2).unwrap().to_owned();
        (dir, base)
    }

    fn one_that_is_done(&self, label: &str) -> String {
        let id = self.bg("the task", ["--label", label, "--permission-mode", "unattended"]);
        self.run(["agents", "wait", &id]).ok();
        id
    }
}

#[test]
fn r21_the_answer_of_a_removed_agent_is_kept_and_can_be_read() {
    let fleet = Fleet::new(script![bash("echo hello"), text("the answer")]);
    let id = fleet.one_that_is_done("mine");
    let removed = fleet.run(["rm", &id]).ok().stdout;
    let words = format!("\n  its transcript is kept: caliban sessions show {id}\n");
    assert!(removed.starts_with(&format!("{id} removed\n")) && removed.ends_with(&words), "{removed}");
    assert_eq!(fleet.rows(), Vec::<Value>::new());
    let listed = fleet.archived();
    assert_eq!(listed.len(), 1, "{listed:#?}");
    let row = &listed[0];
    assert_eq!(
        [&row["id"], &row["label"], &row["why"], &row["state"], &row["title"]],
        [&json!(id), &json!("mine"), &json!("removed"), &json!("done"), &json!("the task")]
    );
    assert!(row["archived_at"].is_string(), "{row:#}");
    let table = fleet.run(["sessions", "list", "--archived"]).ok().stdout;
    assert!(table.contains(&id) && table.contains("mine: the task"), "{table}");
    // It is no session of the foreground, and `--continue` does not take it.
    assert_eq!(fleet.run(["sessions", "list"]).ok().stdout, "No sessions yet.\n");
    for name in [id.as_str(), &id[..6], "mine"] {
        let shown = fleet.run(["sessions", "show", name]).ok().stdout;
        assert!(shown.contains("the answer"), "{name}: {shown}");
    }
    assert!(fleet.run(["sessions", "audit", &id]).ok().stdout.contains("echo hello"));
    assert!(fleet.run(["sessions", "replay", &id]).ok().stdout.contains("the answer"));
    let gone = fleet.run(["logs", &id]).expect_code(1).stderr;
    assert!(gone.contains(&format!("it was removed; `caliban sessions show {id}`")), "{gone}");
    fleet.run(["sessions", "rm", &id]).ok();
    assert_eq!(fleet.archived_ids(), Vec::<String>::new());
}

#[test]
fn r21_rm_done_and_respawn_keep_the_answer_and_purge_leaves_nothing() {
    let fleet = Fleet::new(script![text("an answer to remember").forever()]);
    let [done, old, purged] = ["one", "two", "three"].map(|label| fleet.one_that_is_done(label));
    let (_, base) = fleet.places_of(&done);
    let respawned: Value = fleet.run(["respawn", &old, "--json"]).ok().json();
    let new = respawned["id"].as_str().unwrap();
    assert_eq!(respawned["archived"], json!(base.join("archive").join(&old)));
    fleet.run(["agents", "wait", new]).ok();
    let gone: Value = fleet.run(["rm", &purged, "--purge", "--json"]).ok().json();
    assert_eq!(gone[0]["archived"], Value::Null);
    wait_until("its files are gone", || {
        !["agents", "archive"].iter().any(|place| {
            let entries = std::fs::read_dir(base.join(place)).unwrap();
            entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains(&purged))
        })
    });
    let removed = fleet.run(["rm", "--done"]).ok().stdout;
    assert!(removed.contains(&format!("kept: caliban sessions show {done}\n")), "{removed}");
    let mut expected = vec![(done, "removed"), (old, "respawned"), (new.to_owned(), "removed")];
    let archived = fleet.archived();
    let mut found: Vec<(String, &str)> = archived
        .iter()
        .map(|row| (row["id"].as_str().unwrap().to_owned(), row["why"].as_str().unwrap()))
        .collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    fleet.run(["sessions", "show", &purged]).expect_code(1);
}

#[test]
fn r21_archived_agents_that_are_too_old_go_by_themselves() {
    let fleet = Fleet::new(script![text("an answer").forever()]);
    fleet.settings("[fleet]\narchive_days = 2\n");
    let [old, recent, last] = ["old", "recent", "last"].map(|label| fleet.one_that_is_done(label));
    let (_, base) = fleet.places_of(&old);
    fleet.run(["rm", &old, &recent]).ok();
    let days_ago = |id: &str, days: i64| {
        let at = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * days);
        let record = json!({"version": 1, "at": at.to_string(), "why": "removed"});
        std::fs::write(base.join("archive").join(id).join("archived.json"), record.to_string()).unwrap();
    };
    days_ago(&recent, 1);
    days_ago(&old, 3);
    fleet.run(["rm", &last]).ok();
    wait_until("the old one is gone", || !fleet.archived_ids().contains(&old));
    let mut kept = fleet.archived_ids();
    kept.sort();
    let mut expected = vec![recent, last];
    expected.sort();
    assert_eq!(kept, expected);
}

#[test]
fn r03_a_removal_that_the_daemon_did_not_finish_is_finished_by_the_next_one() {
    let fleet = Fleet::new(script![text("an answer").forever()]);
    let [gone, stays] = ["gone", "stays"].map(|label| fleet.one_that_is_done(label));
    let (dir, base) = fleet.places_of(&gone);
    fleet.run(["daemon", "stop"]).ok();
    // As a daemon leaves it that ends between the move and the deletion of the row.
    std::fs::create_dir_all(base.join("archive")).unwrap();
    std::fs::rename(&dir, base.join("archive").join(&gone)).unwrap();
    let without = fleet.run(["agents", "list", "--all-repos", "--json"]).ok().json::<Vec<Value>>();
    let ids: Vec<&Value> = without.iter().map(|row| &row["id"]).collect();
    assert_eq!(ids, [&json!(stays)], "{without:#?}");
    assert_eq!(fleet.rows().len(), 1);
    let shown = fleet.run(["sessions", "show", &gone]).ok().stdout;
    assert!(shown.contains("an answer"), "{shown}");
}

#[test]
fn a20_the_private_tmp_of_an_agent_goes_when_it_is_removed() {
    let fleet = Fleet { place: crate::place::Place::new(script![]) };
    let command = testkit::tool("Bash", json!({"command": "touch /tmp/left"}));
    fleet.place.server.set_script(script![command, text("done")]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let (dir, base) = fleet.places_of(&id);
    assert!(dir.join("tmp/left").is_file());
    fleet.run(["rm", &id]).ok();
    let archived = base.join("archive").join(&id);
    assert!(archived.join("transcript.jsonl").is_file() && !archived.join("tmp").exists());
}

/// What is kept for an undo goes when nobody can ask for one any more; the transcript stays.
#[test]
fn a12_checkpoints_are_not_archived() {
    let write = |name: &str| testkit::tool("Write", json!({"file_path": name, "content": "x"}));
    let fleet = Fleet::new(script![write("a"), text("done")]);
    let id = fleet.one_that_is_done("mine");
    let (dir, base) = fleet.places_of(&id);
    assert!(dir.join("checkpoints").is_dir());
    fleet.run(["rm", &id]).ok();
    let archived = base.join("archive").join(&id);
    assert!(archived.join("transcript.jsonl").is_file() && !archived.join("checkpoints").exists());
}
