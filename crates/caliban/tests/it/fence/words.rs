//! What people and models are told about the fence, and what happens where there is none.

use serde_json::json;

use testkit::wait_until;

use super::{go, result, results, run, run_with, script, settings};
use crate::{
    fleet::{Fleet, id_of},
    place::Place,
};

/// A user namespace in which no further one can be made.
fn without_namespaces(place: &Place, arguments: &[&str]) -> testkit::Output {
    let program = place.env.cmd("caliban");
    let inner = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    testkit::ProgramRun::new(place.env.program("unshare"))
        .args(["--user", "--map-root-user", "sh", "-c", inner, "sh"])
        .args([program.get_program().to_str().unwrap()])
        .args(arguments.iter().copied())
        .dir(&place.repo)
        .output()
}

fn asked_without_namespaces(place: &Place, more: &[&str]) -> testkit::Output {
    let server = place.server.args(place.protocol);
    let arguments = server.iter().map(String::as_str).chain(["-p", "go"]).chain(more.iter().copied());
    without_namespaces(place, &arguments.collect::<Vec<_>>())
}

#[test]
fn a17_a_command_that_hit_the_fence_says_so_and_can_be_asked_for_outside() {
    let place = run_with(
        "accept-edits",
        &[
            json!({"command": "mkdir /srv/x"}),
            json!({"command": "mkdir /srv/x", "outside": true, "description": "the service keeps its data there"}),
            json!({"command": "ls", "outside": true}),
        ],
        &[],
    );
    let results = results(&place);
    assert_eq!(results[0].0, "edit");
    assert!(results[0].1.contains("call it again with outside: true"), "{}", results[0].1);
    assert_eq!(results[1].0, "unasked");
    assert!(
        results[1].1.contains("outside of the fence: the service keeps its data there"),
        "{}",
        results[1].1
    );
    // A plain command asks nowhere.
    assert_eq!(results[2].0, "none", "{}", results[2].1);
}

/// A failure that has nothing to do with the fence is not blamed on it.
#[test]
fn a17_a_failing_test_is_not_blamed_on_the_fence() {
    let place = run("accept-edits", &["echo '1 test failed'; exit 3"]);
    let (fence, text, code) = result(&place);
    assert_eq!((fence.as_str(), code), ("read", Some(3)));
    assert!(!text.contains("outside"), "{text}");
}

#[test]
fn a17_where_no_fence_can_be_put_up_a_required_one_fails_closed_in_words() {
    let place = Place::new(script(&[json!({"command": "ls"})]));
    settings(&place, "sandbox = \"required\"\n");
    let output = asked_without_namespaces(&place, &[]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        output.stderr.contains("commands cannot be fenced on this machine: no namespaces of its own"),
        "{output:?}"
    );
    assert!(
        output.stderr.contains("hint: `caliban doctor` says more; with sandbox = \"auto\""),
        "{output:?}"
    );
    assert_eq!(place.server.requests().len(), 0);
}

#[test]
fn a17_where_no_fence_can_be_put_up_only_a_few_plain_commands_run_unasked() {
    let commands = ["ls", "cat file.txt", "git status", "find . -name x", "rg x", "ls *", "touch x"];
    let place = Place::new(script(&commands.map(|command| json!({"command": command}))));
    let output = asked_without_namespaces(&place, &["--permission-mode", "accept-edits"]);
    assert_eq!(output.code, 3, "{output:?}");
    let decided: Vec<String> = results(&place).into_iter().map(|(what, ..)| what).collect();
    assert_eq!(decided, ["none", "none", "unasked", "unasked", "unasked", "unasked", "unasked"]);
}

/// What nobody has set: required in the background, auto in the foreground (the test above).
#[test]
fn a17_without_a_setting_an_agent_in_the_background_does_not_begin_where_no_fence_can_be_put_up() {
    let fleet = Fleet { place: Place::new(script(&[json!({"command": "ls"})])) };
    let server = fleet.place.server.args(fleet.place.protocol);
    let words = |more: &[&str]| -> Vec<String> {
        server
            .iter()
            .cloned()
            .chain(["--bg", "the task"].into_iter().chain(more.iter().copied()).map(str::to_owned))
            .collect()
    };
    let start = |more: &[&str]| {
        let words = words(more);
        id_of(&without_namespaces(&fleet.place, &words.iter().map(String::as_str).collect::<Vec<_>>()).ok())
    };
    // The daemon that this starts has no namespaces either, and so has what it starts later.
    let id = start(&[]);
    wait_until("it has failed", || fleet.state(&id) == "failed");
    let row = fleet.row(&id).to_string();
    assert!(row.contains("commands cannot be fenced on this machine: no namespaces of its own"), "{row}");
    assert!(row.contains("sandbox = \\\"auto\\\""), "it names the setting: {row}");
    assert_eq!(fleet.place.server.requests().len(), 0);
    settings(&fleet.place, "sandbox = \"auto\"\n");
    let id = start(&["--isolation", "none"]);
    wait_until("it is done", || fleet.state(&id) == "done");
    fleet.run(["daemon", "stop"]);
}

#[test]
fn a17_the_doctor_tries_the_fence() {
    let place = Place::new(script(&[]));
    let output = place.verb(["doctor"]);
    assert!(output.stdout.contains("ok    sandbox   commands are fenced (tried"), "{}", output.stdout);
    let output = without_namespaces(&place, &["doctor"]);
    assert!(
        output.stdout.contains("warn  sandbox   commands cannot be fenced: no namespaces"),
        "{}",
        output.stdout
    );
    // What is wrong with this machine, and nothing else.
    assert!(output.stdout.contains("sysctl -w user.max_user_namespaces=15000"), "{}", output.stdout);
    assert!(!output.stdout.contains("5.13 or newer"), "{}", output.stdout);
}

/// Seen: an agent that was allowed to run `caliban` ran `caliban -p --permission-mode unattended`.
#[test]
fn a17_a_process_of_an_agent_asks_no_more_of_caliban_than_the_agent_has() {
    let program = testkit::Env::new().cmd("caliban").get_program().to_str().unwrap().to_owned();
    let inputs = [
        format!("{program} -p hi --permission-mode unattended"),
        format!("{program} -p hi --allow 'Bash(*)'"),
        format!("{program} trust"),
        format!("{program} -p hi --add-dir /"),
        format!("{program} acp --permission-mode unattended"),
        format!("{program} trust list"),
    ];
    let place = run_with(
        "default",
        &inputs.map(|command| json!({"command": command})),
        &["--allow", &format!("Bash({program} *) outside")],
    );
    let results = results(&place);
    for (result, words) in results.iter().zip([
        "choose a wider permission mode",
        "give rules that allow",
        "trust a repo",
        "add directories",
        "choose a wider permission mode",
    ]) {
        assert!(result.1.contains(&format!("a process of an agent cannot {words}")), "{results:?}");
        assert_eq!((result.0.as_str(), result.2), ("none", Some(2)), "{results:?}");
    }
    assert_eq!(results[5].2, Some(0), "{results:?}");
}

/// Seen: a command of an agent in the foreground counted as the person's for the daemon and the ledger, and in a pid namespace
/// of its own for everybody.
#[test]
fn a17_a_command_of_an_agent_in_the_foreground_starts_no_agent_and_raises_no_limit() {
    let program = testkit::Env::new().cmd("caliban").get_program().to_str().unwrap().to_owned();
    let asked = [
        (
            format!("{program} --bg hi --provider scripted --permission-mode unattended"),
            "cannot start agents",
        ),
        (format!("{program} --bg hi --provider scripted --isolation none"), "cannot start agents"),
        (format!("{program} budget set day --usd 2000"), "cannot change what agents may spend"),
        (
            format!("unshare -rp --fork --mount-proc {program} -p hi --permission-mode unattended"),
            "a process of an agent cannot choose a wider permission mode",
        ),
        (
            format!("unshare -rp --fork --mount-proc {program} budget set day --usd 2000"),
            "cannot change what agents may spend",
        ),
    ];
    let place = run_with(
        "default",
        &asked.clone().map(|(command, _)| json!({"command": command})),
        &["--allow", &format!("Bash({program} *) outside"), "--allow", "Bash(unshare *) outside"],
    );
    let results = results(&place);
    for (result, (command, words)) in results.iter().zip(asked) {
        assert!(result.1.contains(words) && result.2 != Some(0), "{command}: {result:?}");
    }
}

/// A setting turns it off; then the same short list holds.
#[test]
fn a17_off_is_off() {
    let place = Place::new(script(&[json!({"command": "ls"}), json!({"command": "touch x"})]));
    settings(&place, "sandbox = \"off\"\n");
    go(&place, "accept-edits", &[]);
    let decided: Vec<String> = results(&place).into_iter().map(|(what, ..)| what).collect();
    assert_eq!(decided, ["none", "unasked"]);
}
