//! `fleet.notify` for ends that no worker can tell of: the daemon has them told.

use testkit::{script, text, wait_until};

use crate::fleet::{Fleet, bash};

/// Ends a process at once.
fn end(pid: &serde_json::Value) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid.as_i64().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn crashed_killed_and_never_started_agents_are_told_with_the_settings_of_whoever_spawned_them() {
    let fleet = Fleet::new(script![bash("sleep 1000"), bash("sleep 1000"), text("never")]);
    let news = fleet.place.env.work().join("news");
    fleet.settings(&format!(
        "[fleet]\nnotify = \"echo $CALIBAN_EVENT $CALIBAN_LABEL: $CALIBAN_TEXT @$HOME >> {}\"\n",
        news.display()
    ));
    let told = |line: &str| {
        let line = line.replace("HOME", &fleet.place.env.home().display().to_string());
        wait_until(&format!("it is told: {line}"), || {
            std::fs::read_to_string(&news).is_ok_and(|text| text.lines().any(|told| told == line))
        });
    };
    let at_work = |id: &str| {
        wait_until("it is at work", || {
            fleet.row(id)["doing"].as_str().is_some_and(|doing| doing.starts_with("Bash"))
        });
    };
    let options = ["--permission-mode", "unattended", "--isolation", "none"];
    let one = fleet.bg("one", [&options[..], &["--label", "one"]].concat());
    at_work(&one);
    end(&fleet.row(&one)["pid"]);
    told("crashed one: ended by signal 9 @HOME");

    let two = fleet.bg("two", [&options[..], &["--label", "two"]].concat());
    at_work(&two);
    fleet.bg("three", [&options[..], &["--label", "three", "--after", &two]].concat());
    fleet.run(["kill", &two]).ok();
    told("killed two: ended by signal 15 @HOME");
    told(&format!("failed three: error: it was to start after {two}, which ended killed @HOME"));
    assert_eq!(fleet.place.env.read(&news).lines().count(), 3);
}

/// Run by the worker (idle) or for the daemon (killed), the command leaves nothing behind.
#[test]
fn r06_a_notify_command_that_succeeds_leaves_no_process() {
    let fleet = Fleet::new(script![text("done")]);
    let pids = fleet.place.env.work();
    let started =
        |event: &str| std::fs::read_to_string(pids.join(event)).is_ok_and(|pid| pid.ends_with('\n'));
    fleet.settings(&format!(
        "[fleet]\nnotify = '''cd {}; export AT=$CALIBAN_EVENT; \
         setsid sh -c 'echo $$ > $AT; exec sleep 1000' & \
         while [ ! -s $AT ]; do sleep 0.01; done'''\n",
        pids.display()
    ));
    let gone = |event: &str| {
        wait_until(&format!("{event} is told"), || started(event));
        let pid = fleet.place.env.read(pids.join(event));
        wait_until(&format!("nothing is left of {event}"), || {
            !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists()
        });
    };
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.wait_for(&id, "idle");
    gone("idle");
    assert_eq!(fleet.state(&id), "idle");
    fleet.run(["kill", &id]).ok();
    gone("killed");
}
