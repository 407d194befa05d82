//! Every command of `docs/guide/team-in-tmux.md`, in its order, with fake agents in a real tmux. Ids, times and numbers may
//! differ; every other word is compared.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::members::Team;
use crate::panes::Tmux;
use crate::world::eventually;

#[test]
fn the_team_guide_shows_what_happens() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/team-in-tmux.md");
    let page = fs::read_to_string(page).expect("guide");
    let team = stage();
    let mut ids: HashMap<String, String> = HashMap::new();
    let mut ran = 0;
    for (command, expected) in steps(&page) {
        prepare(&team, &command, &ids);
        let mut line = command.clone();
        for (shown, real) in &ids {
            line = line.replace(shown, real);
        }
        let done = team.tmux.world.program("sh", &["-c", &line]).output().expect("run");
        let said =
            format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{line}: {said}");
        learn(&expected, &said, &mut ids);
        assert_eq!(masked(&said), masked(&expected), "{line}\n{said}");
        ran += 1;
    }
    assert_eq!(ran, 9, "all commands of the page");
}

/// A Director in its pane, in a repository with a change.
fn stage() -> Team {
    let mut tmux = Tmux::start();
    let bin = tmux.world.path("bin");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cafleet"), bin.join("cafleet")).expect("symlink");
    tmux.world.set("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()));
    tmux.world.set("CAFLEET_DELIVERER", "on");
    fs::create_dir_all(tmux.world.path("src")).expect("mkdir");
    fs::write(tmux.world.path("src/main.rs"), "fn main() {}\n").expect("write");
    for args in [
        &["init", "-q"][..],
        &["add", "src"],
        &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "one"],
    ] {
        assert!(tmux.world.program("git", args).status().expect("git").success());
    }
    fs::write(tmux.world.path("src/main.rs"), "fn main() { }\n").expect("write");
    tmux.agent("claude", "free");
    Team { tmux }
}

/// Brings the panes to where the page has them.
fn prepare(team: &Team, command: &str, ids: &HashMap<String, String>) {
    if command.contains("monitor") {
        team.set_mode("%1", "question", "Which color?");
        team.set_mode("%2", "busy", "esc to interrupt");
        let id = |shown: &str| ids[shown].clone();
        let args =
            ["--session-id", &id("d10e039f"), "message", "send", "--agent-id", &id("83ccfcda"), "--to"];
        let to = id("eb4c4552");
        let sent =
            team.tmux.world.command(&[&args[..], &[&to, "--text", "x"]].concat()).output().expect("send");
        assert!(sent.status.success());
        let back =
            ["--session-id", &id("d10e039f"), "message", "send", "--agent-id", &to, "--to", &id("83ccfcda")];
        let sent =
            team.tmux.world.command(&[&back[..], &["--text", "ready"]].concat()).output().expect("send");
        assert!(sent.status.success());
        eventually("the Director to rest", || {
            let scan = team.tmux.world.json(&["monitor", "scan", "--json"]);
            (scan[0]["state"] == "free" && scan[0]["held"] == 0).then_some(())
        });
    }
    if command.contains("member exec") {
        team.set_mode("%1", "free", "? for help");
        eventually("the member to rest", || {
            let scan = team.tmux.world.json(&["monitor", "scan", "--json"]);
            (scan[1]["state"] == "free" && scan[1]["held"] == 0).then_some(())
        });
    }
    if command.contains("--with-members") {
        team.set_mode("%2", "free", "? for help");
        team.is_free("%1");
        team.is_free("%2");
    }
    if command.contains("message send") {
        team.is_free("%2");
    }
}

/// The commands of a page with what they print.
fn steps(page: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match (line, inside) {
            ("```console", false) => inside = true,
            ("```", true) => inside = false,
            (line, true) => match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push((command.to_owned(), String::new())),
                (None, Some((_, said))) => said.push_str(&format!("{line}\n")),
                (None, None) => panic!("output before a command: {line}"),
            },
            _ => {}
        }
    }
    steps
}

/// Learns which id here is which id of the page, from words in the same place.
fn learn(expected: &str, said: &str, ids: &mut HashMap<String, String>) {
    let words = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    for (shown, real) in words(expected).iter().zip(words(said)) {
        let is_id =
            |word: &str| word.get(..8).is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_id(shown) && is_id(&real) {
            ids.entry(shown[..8].to_owned()).or_insert_with(|| real[..8].to_owned());
        }
    }
}

/// The words, with ids and numbers masked.
fn masked(text: &str) -> Vec<Vec<String>> {
    let word = |word: &str| -> String {
        let bare = word.trim_matches(['[', ']', '.']);
        let bare = bare.strip_prefix("from:").unwrap_or(bare);
        let hex =
            |text: &str| text.len() >= 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if hex(bare) {
            return "<id>".to_owned();
        }
        let mut out = String::new();
        for c in word.chars() {
            let c = if c.is_ascii_digit() { '#' } else { c };
            if !(c == '#' && out.ends_with('#')) {
                out.push(c);
            }
        }
        // Minutes are as good as seconds.
        if ["#s", "#m", "#h"].contains(&out.as_str()) { "#".to_owned() } else { out }
    };
    text.lines().map(|line| line.split_whitespace().map(word).collect()).collect()
}
