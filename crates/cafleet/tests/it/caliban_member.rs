//! m08, m10: our own agent as a member. Its messages come out of its mailbox, its state over its socket; nothing is typed.

use std::fs;

use serde_json::{Value, json};
use testkit::Env;

use crate::members::{Team, pane};
use crate::world::{Said, eventually, ok};

/// What the model says: it reports, answers one message, asks a person for another, and works on a third.
const SCRIPT: &str = r#"{"steps": [
  {"when": {"turn": 0}, "tool_calls": [{"name": "BrokerSend", "input": {"to": "@D", "text": "ready"}}]},
  {"when": {"contains": "what is in it?"}, "tool_calls": [{"name": "BrokerSend", "input": {"to": "@D", "text": "nothing"}}]},
  {"when": {"contains": "ask me"}, "tool_calls": [{"name": "WebFetch", "input": {"url": "http://127.0.0.1:1/", "prompt": "x"}}]},
  {"when": {"contains": "work"}, "text": "working on it", "delay_ms": 600000},
  {"text": "done", "repeat": true}
]}"#;

/// A team with a caliban on the path, which answers as the script says.
fn team() -> Team {
    let team = Team::start(true);
    let caliban = Env::new().cmd("caliban").get_program().to_owned();
    std::os::unix::fs::symlink(caliban, team.tmux.world.path("bin/caliban")).expect("symlink");
    let script = team.tmux.world.path("script.json");
    fs::write(&script, SCRIPT.replace("@D", &team.tmux.world.id("D"))).expect("script");
    let config = team.tmux.world.path("home/.config/caliban");
    fs::create_dir_all(&config).expect("mkdir");
    let settings =
        format!("provider = \"scripted\"\n[providers.scripted]\nscript = \"{}\"\n", script.display());
    fs::write(config.join("settings.toml"), settings).expect("settings");
    team
}

fn create(team: &Team) -> Value {
    let args = ["--name", "cal", "--description", "d", "--coding-agent", "caliban"];
    let made = team.member_json("create", &args);
    team.tmux.world.name("cal", made["agent_id"].as_str().expect("id"));
    made
}

fn heard(team: &Team, text: &str) {
    eventually(&format!("the Director to hear {text}"), || {
        team.tmux.world.mailbox("D").iter().any(|task| task["text"] == json!(text)).then_some(())
    });
}

fn is(team: &Team, pane: &str, state: &str) {
    eventually(&format!("the member to be {state}"), || {
        let scan = team.tmux.world.json(&["monitor", "scan", "--json"]);
        let row = scan.as_array().expect("rows").iter().find(|row| row["pane_id"] == json!(pane)).cloned();
        (row?["state"] == json!(state)).then_some(())
    });
}

#[test]
fn m08_a_caliban_member_takes_its_messages_by_itself_and_says_what_it_is_at() {
    let team = team();
    let made = create(&team);
    let pane = pane(&made).to_owned();
    heard(&team, "ready");
    is(&team, &pane, "free");
    // A message is confirmed by its own transcript, and acknowledged.
    team.tmux.world.send("T", "D", "cal", "what is in it?");
    heard(&team, "nothing");
    eventually("the receipt", || {
        let got = team.tmux.world.mailbox("cal");
        let task = got.iter().find(|task| task["task_id"] == json!(team.tmux.world.id("T")))?.clone();
        (task["status_state"] == json!("completed")).then_some(())
    });
    assert_eq!(team.tmux.delivery("T")["state"], json!("confirmed"));
    // Nothing was typed: its input line never had the text.
    assert!(!team.screen(&pane).contains("[cafleet msg"), "{}", team.screen(&pane));
    is(&team, &pane, "free");
    let skipped = team.member("ping", &["--member-id", "@cal"]);
    assert_eq!(skipped, ok("Skipped <cal8>: it takes its messages by itself"));
    // A question is its person's.
    team.tmux.world.send("Q", "D", "cal", "ask me");
    is(&team, &pane, "asking");
    let refused = team.member("send-input", &["--member-id", "@cal", "--choice", "1"]);
    let err = format!(
        "Error: nothing is typed into a member that runs caliban\nhint: answer it in its pane: tmux select-pane -t '{pane}'\n"
    );
    assert_eq!(refused, Said { code: 1, out: String::new(), err });
    let deleted = team.member("delete", &["--member-id", "@cal", "--force"]);
    assert_eq!(deleted.code, 0, "{deleted:?}");
}

#[test]
fn m10_a_caliban_member_leaves_in_order_when_it_rests_and_is_not_interrupted() {
    let team = team();
    let made = create(&team);
    let pane = pane(&made).to_owned();
    heard(&team, "ready");
    is(&team, &pane, "free");
    let session = |ends: &str| {
        let found = team.tmux.world.program("grep", &["-rlF", ends, "home/.local/share/caliban"]).output();
        !found.expect("grep").stdout.is_empty()
    };
    assert_eq!(
        team.member("delete", &["--member-id", "@cal"]),
        ok(&format!("Member deleted.\n  agent_id: <cal>\n  pane_id:  {pane} (closed)"))
    );
    assert_eq!(team.panes(), ["%0"]);
    assert!(session("tell your Director with BrokerSend"), "its conversation is on the disk");
    let sockets =
        team.tmux.world.program("find", &["home/.local/share/cafleet/members", "-name", "*.sock"]).output();
    assert_eq!(String::from_utf8_lossy(&sockets.expect("find").stdout), "", "its socket went with it");
    // One that works is waited for, and then left alone.
    let made = create(&team);
    let second = crate::members::pane(&made).to_owned();
    is(&team, &second, "free");
    team.tmux.world.send("W", "D", "cal", "work");
    is(&team, &second, "working");
    let refused = team.member("delete", &["--member-id", "@cal"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("did not leave within 15 s: it is at work"), "{}", refused.err);
    is(&team, &second, "working");
    let deleted = team.member("delete", &["--member-id", "@cal", "--force"]);
    assert_eq!(deleted.code, 0, "{deleted:?}");
}

#[test]
fn a11_nobody_else_starts_a_caliban_as_a_member() {
    let team = team();
    let tmux = &team.tmux;
    let id = "edf416af-c947-41bf-80c3-2db1584dd4a8";
    let line = format!("caliban --member {id} hello; echo left with $?");
    let typed =
        tmux.tmux(&["split-window", "-d", "-t", "%0", &format!("sh -c '{line}; sleep 600'")]).status();
    assert!(typed.expect("tmux").success());
    eventually("the refusal", || {
        let screen = team.screen("%1");
        let is_refused = screen.contains("not in the pane of the member") && screen.contains("left with 2");
        is_refused.then_some(())
    });
}
