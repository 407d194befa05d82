//! What a fenced command may take of the machine (a20).

use serde_json::json;
use testkit::script;

use super::result;
use crate::place::Place;

/// What the model is told of a command under these limits.
fn told(limits: &str, command: &str) -> String {
    let place =
        Place::new(script![testkit::tool("Bash", json!({"command": command})), testkit::text("done")]);
    let path = place.env.config().join("caliban/settings.toml");
    place.env.write(path, format!("[fleet]\n{limits}\n"));
    place.ask("go", ["--permission-mode", "accept-edits"]).ok();
    let (fence, told, _) = result(&place);
    assert_eq!(fence, "edit");
    testkit::wait_until("its processes are gone", || place.env.processes().is_empty());
    told
}

#[test]
fn a20_a_command_that_eats_memory_is_ended_in_words() {
    let eat =
        "/usr/bin/python3 -c 'import time; all = [bytearray(64 << 20) for _ in range(8)]; time.sleep(600)'";
    let said = told("memory_max = '256 MB'", eat);
    assert!(said.contains("[killed: used more than 256 MB of memory (fleet.memory_max)]"), "{said}");
    // All its processes together.
    let eat = "for n in 1 2 3 4 5 6; do /usr/bin/python3 -c 'import time; a = bytearray(64 << 20); time.sleep(600)' & done; wait";
    let said = told("memory_max = '256 MB'", eat);
    assert!(said.contains("[killed: used more than 256 MB of memory (fleet.memory_max)]"), "{said}");
    let said = told("memory_max = '2 GB'", "touch made; sleep 1; echo fine");
    assert_eq!(said, "fine\n");
}

#[test]
fn a20_a_command_that_fills_the_disk_is_ended_in_words() {
    for place in ["/tmp/big", "big"] {
        let fill = format!(
            "/usr/bin/python3 -c 'import os, time; f = open(\"{place}\", \"wb\"); f.write(bytes(60 << 20)); \
             os.fsync(f.fileno()); time.sleep(600)'"
        );
        let said = told("disk_max = '20 MB'", &fill);
        assert!(said.contains("[killed: used more than 20 MB of disk (fleet.disk_max)]"), "{place}: {said}");
    }
}

#[test]
fn a20_a_command_that_forks_is_ended_in_words() {
    let fork = "for n in $(seq 400); do sleep 600 & done; wait";
    let said = told("pids_max = 100", fork);
    assert!(said.contains("[killed: had more than 100 processes (fleet.pids_max)]"), "{said}");
}
