//! What a command, and an agent with all that it started, may take of the machine (a20).

use serde_json::json;
use testkit::{StepExt as _, script, text};

use super::result;
use crate::{
    fleet::{Fleet, bash},
    place::Place,
};

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

/// Memory that is shared, or that is a file, is memory.
#[test]
fn a20_memory_that_is_shared_or_a_file_counts_and_counts_once() {
    let mapped =
        "import mmap, time; all = mmap.mmap(-1, 512 << 20); [all.write(bytes(64 << 20)) for _ in range(8)]";
    let written =
        "import os, time; all = os.memfd_create(\"x\"); [os.write(all, bytes(64 << 20)) for _ in range(8)]";
    // A program that hides would not be seen.
    let hides = format!("import ctypes; assert ctypes.CDLL(None).prctl(4, 0) == -1; {written}");
    for eat in [mapped, written, &hides] {
        let said = told("memory_max = '256 MB'", &format!("/usr/bin/python3 -c '{eat}; time.sleep(600)'"));
        let words = "[killed: used more than 256 MB of memory (fleet.memory_max)]";
        assert!(said.contains(words), "{eat}: {said}");
    }
    // Four processes have the same 100 MB.
    let share = "import mmap, os, time; all = mmap.mmap(-1, 100 << 20); all.write(bytes(100 << 20)); \
                 [os.fork() for _ in range(2)]; all.seek(0); all.read(100 << 20); time.sleep(3); print(\"fine\")";
    let said = told("memory_max = '512 MB'", &format!("/usr/bin/python3 -c '{share}'"));
    // The first of them does not wait for the others.
    assert!(said.starts_with("fine\n") && !said.contains("[killed:"), "{said}");
    for place in ["/dev/shm", "/run", "/var/tmp"] {
        // A little at a time: it is not the program that has the memory.
        let fill = format!(
            "/usr/bin/python3 -c 'f = open(\"{place}/big\", \"wb\", 0); [f.write(bytes(1 << 20)) for _ in range(300)]'"
        );
        let said = told("memory_max = '256 MB'", &fill);
        assert!(said.contains("No space left on device"), "{place}: {said}");
    }
}

#[test]
fn a20_a_command_that_fills_the_disk_is_ended_in_words() {
    for (place, then) in [("/tmp/big", ""), ("big", ""), ("big", "os.unlink(\"big\");")] {
        let fill = format!(
            "/usr/bin/python3 -c 'import os, time; f = open(\"{place}\", \"wb\"); {then} f.write(bytes(60 << 20)); \
             os.fsync(f.fileno()); time.sleep(600)'"
        );
        let said = told("disk_max = '20 MB'", &fill);
        assert!(said.contains("[killed: used more than 20 MB of disk (fleet.disk_max)]"), "{place}: {said}");
    }
}

/// What an agent's earlier commands left in its own worktree counts for the next one that writes there.
#[test]
fn a20_an_agents_own_worktree_is_filled_by_no_number_of_commands() {
    // No word of the output is in the command.
    let fill = |name: &str| {
        bash(&format!(
            "/usr/bin/python3 -c 'import os, time; f = open(\"{name}\", \"wb\"); f.write(bytes(15 << 20)); \
             os.fsync(f.fileno()); time.sleep(4); print(\"filled\" + \" {name}\")'"
        ))
    };
    let fleet = Fleet { place: Place::new(script![]) };
    fleet.settings("\n[fleet]\ndisk_max = '20 MB'\n");
    let read = bash("sleep 3; cat READ* > /dev/null; echo re''ad");
    fleet.place.server.set_script(script![fill("first"), read, fill("second"), text("done")]);
    let id = fleet.bg("go", ["--permission-mode", "accept-edits"]);
    fleet.run(["agents", "wait", &id]).ok();
    let told = fleet.run(["logs", &id, "--json"]).ok().stdout;
    let words = "[killed: used more than 20 MB of disk (fleet.disk_max)]";
    assert!(told.contains("filled first") && told.contains("read\\n") && told.contains(words), "{told}");
    assert!(!told.contains("filled second"), "{told}");
}

#[test]
fn a20_a_command_that_forks_is_ended_in_words() {
    let fork = "for n in $(seq 400); do sleep 600 & done; wait";
    let said = told("pids_max = 100", fork);
    assert!(said.contains("[killed: had more than 100 processes (fleet.pids_max)]"), "{said}");
}

/// Without a shift: where a rule denies reading, `<<` in a line is judged as strictly as a here-document.
const EAT: &str =
    "/usr/bin/python3 -c 'import time; all = [bytearray(67108864) for _ in range(8)]; time.sleep(600)'";

#[test]
fn a20_a_command_outside_the_fence_and_in_the_open_one_is_ended_in_words() {
    let fork = "for n in $(seq 400); do sleep 600 & done; wait";
    let fill = "/usr/bin/python3 -c 'import os, time; f = open(\"big\", \"wb\"); f.write(bytes(62914560)); \
                os.fsync(f.fileno()); time.sleep(600)'";
    for (limit, command, words) in [
        ("memory_max = '256 MB'", EAT, "[killed: used more than 256 MB of memory (fleet.memory_max)]"),
        ("pids_max = 100", fork, "[killed: had more than 100 processes (fleet.pids_max)]"),
        ("disk_max = '20 MB'", fill, "[killed: used more than 20 MB of disk (fleet.disk_max)]"),
    ] {
        for (rules, fence) in [(&[][..], "none"), (&["--deny", "Read(secret.txt)"][..], "open")] {
            let place = Place::new(script![bash(command), text("done")]);
            place.env.write(place.repo.join("secret.txt"), "a secret\n");
            place.env.write(place.env.config().join("caliban/settings.toml"), format!("[fleet]\n{limit}\n"));
            place
                .ask("go", ["--permission-mode", "unattended"].into_iter().chain(rules.iter().copied()))
                .ok();
            let (found, said, _) = result(&place);
            assert_eq!(found, fence);
            assert!(said.contains(words), "{fence}: {said}");
            testkit::wait_until("its processes are gone", || place.env.processes().is_empty());
        }
    }
}

/// Each of its commands takes less than it may; all together take more.
#[test]
fn a20_an_agent_that_takes_too_much_with_all_that_it_started_is_ended_and_its_row_says_why() {
    let fleet = Fleet::new(script![]);
    fleet.settings("\n[fleet]\npids_max = 60\n");
    let doctor = fleet.run(["doctor"]).stdout;
    if doctor.contains("processes by a control group") {
        // The kernel refuses further processes: nobody has to be ended.
        return;
    }
    let many = || {
        let command = "for n in $(seq 35); do sleep 600 & done; wait";
        testkit::tool("Bash", json!({"command": command, "run_in_background": true, "description": "d"}))
    };
    fleet.place.server.set_script(script![
        many().on_first("go"),
        many().on_first("go"),
        bash("sleep 600").on_first("go").forever()
    ]);
    let id = fleet.bg("go", ["--permission-mode", "unattended"]);
    fleet.run(["agents", "wait", &id]);
    let row = fleet.row(&id);
    let why = "killed: had more than 60 processes (fleet.pids_max)";
    assert_eq!(row["state"], "failed", "{row}");
    assert!(row.to_string().contains(why), "{row}");
    let list = fleet.run(["agents", "list"]).ok().stdout;
    assert!(list.contains("killed: had more than 60"), "{list}");
    let left = || fleet.place.env.processes().into_iter().filter(|(_, line)| line.contains("sleep")).count();
    assert_eq!(left(), 0);
}

/// In the foreground there is no shim: the command that takes the most is ended, and the others and the conversation go on.
#[test]
fn a20_commands_of_an_agent_in_the_foreground_are_held_together() {
    let sleepers = |count: usize| format!("for n in $(seq {count}); do sleep 600 & done; wait");
    let beside = json!({"command": sleepers(30), "run_in_background": true, "description": "d"});
    let place = Place::new(script![
        testkit::tool("Bash", beside),
        bash(&sleepers(45)),
        testkit::tool("BashOutput", json!({"bash_id": "bash_1"})),
        testkit::tool("KillShell", json!({"shell_id": "bash_1"})),
        text("done")
    ]);
    place.env.write(place.env.config().join("caliban/settings.toml"), "[fleet]\npids_max = 60\n");
    place.ask("go", ["--permission-mode", "unattended"]).ok();
    let found = super::results(&place);
    assert!(found[1].1.contains("[killed: had more than 60 processes (fleet.pids_max)]"), "{found:?}");
    assert!(found[2].1.contains("running"), "{found:?}");
    testkit::wait_until("its processes are gone", || place.env.processes().is_empty());
}

/// Where a control group can be had, the kernel holds the agent to its memory; the command that takes too much is ended either way.
#[test]
fn a20_the_memory_of_an_agent_is_held_and_its_command_is_told_why() {
    let fleet = Fleet::new(script![]);
    fleet.settings("\n[fleet]\nmemory_max = '256 MB'\n");
    fleet.place.server.set_script(script![
        bash(EAT).on_first("go"),
        text("done").on_first("go"),
        bash("sleep 600").on_first("stay").forever()
    ]);
    let id = fleet.bg("go", ["--permission-mode", "unattended"]);
    fleet.run(["agents", "wait", &id]).ok();
    let told = fleet.run(["logs", &id, "--json"]).ok().stdout;
    assert!(told.contains("[killed: used more than 256 MB of memory (fleet.memory_max)]"), "{told}");
    // Who holds what is said as it is.
    let doctor = fleet.run(["doctor"]).stdout;
    let is_held = doctor.contains("memory by a control group");
    assert_eq!(doctor.contains("memory by a watch"), !is_held, "{doctor}");
    assert!(
        doctor.contains("at most 8192 processes, 256 MB of memory and 64 GB of disk for a command"),
        "{doctor}"
    );
    let id = fleet.bg("stay", ["--permission-mode", "unattended"]);
    let group = || {
        let record = fleet.place.env.read(crate::heard_once::directory(&fleet, &id).join("shim.json"));
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        Some(std::path::PathBuf::from(record["group"].as_str()?))
    };
    testkit::wait_until("it runs", || fleet.row(&id)["state"] == "running");
    let limits = group()
        .into_iter()
        .flat_map(|dir| ["memory.max", "memory.limit_in_bytes"].map(|file| dir.join(file)));
    let found: Vec<String> = limits.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    assert_eq!(found.contains(&format!("{}\n", 256 << 20)), is_held, "{found:?}");
}

/// The next session or daemon of the repo removes the private `/tmp` of one that did nothing for a day, and of nobody else.
#[test]
fn a20_a_private_tmp_goes_with_the_next_session_or_daemon_a_day_later() {
    let place = Place::new(script![text("ok").forever()]);
    place.ask("go", []).ok();
    place.ask("go", []).ok();
    let [old, new] = &place.sessions()[..] else { panic!("{:?}", place.sessions()) };
    for session in [old, new] {
        place.env.write(session.join("tmp/left"), "x");
    }
    let set_back = || {
        let find = std::process::Command::new("find")
            .arg(old)
            .args(["-exec", "touch", "-h", "-d", "2 days ago", "{}", "+"])
            .status();
        assert!(find.unwrap().success());
        // Sessions are looked through once in an hour.
        let _none = std::fs::remove_file(old.ancestors().nth(2).unwrap().join("tmp.swept"));
    };
    set_back();
    testkit::wait_until("it is swept", || {
        place.ask("go", []).ok();
        !old.join("tmp").exists()
    });
    assert!(new.join("tmp/left").exists() && old.join("transcript.jsonl").exists());
    // A daemon does it, too, without a session.
    place.env.write(old.join("tmp/left"), "x");
    set_back();
    place.verb(["agents", "list"]).ok();
    testkit::wait_until("the daemon sweeps", || !old.join("tmp").exists());
    assert!(new.join("tmp/left").exists());
}
