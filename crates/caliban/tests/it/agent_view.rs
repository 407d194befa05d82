//! The agent view in a real terminal.

use rustix::process::{Pid, Signal, kill_process};
use testkit::{Tmux, script, text};

use crate::{
    fleet::{Fleet, bash, id_of, write},
    screen::{modes, wait_until_read},
};

/// A terminal in the repo in which the agent view was opened.
fn open(fleet: &Fleet) -> Tmux<'_> {
    let tmux = Tmux::start(&fleet.place.env, 110, 30);
    start(&tmux, fleet, "agents");
    tmux.wait_for_text("agents of");
    tmux
}

fn start(tmux: &Tmux<'_>, fleet: &Fleet, args: &str) {
    let program = fleet.place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    let repo = fleet.place.repo.display();
    tmux.send_text(&format!("cd {repo} && {program} {args}; echo left with $?"));
    tmux.send_keys(&["Enter"]);
}

/// Esc, and nothing else before the terminal can tell that it was no Alt.
fn back(tmux: &Tmux<'_>) {
    tmux.send_keys(&["Escape"]);
    tmux.wait_for("the list has the keys", |screen| !screen.contains("── ") && !screen.contains("Esc back"));
}

fn leave(tmux: &Tmux<'_>) {
    tmux.send_keys(&["q"]);
    tmux.wait_for_text("left with 0");
    assert_eq!(modes(tmux), "0 0 0 1");
}

#[test]
fn the_agent_view_opens_an_agent_and_comes_back() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("all done")]);
    let id = fleet.bg("the task", ["--label", "asker"]);
    fleet.wait_for_ask(&id);
    let tmux = open(&fleet);
    let screen = tmux.wait_for_text("asks: Bash touch asked-for");
    assert!(screen.contains("needs you (1)") && screen.contains(&format!("›  {id} asker")), "{screen}");
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("1 question (Tab)");
    tmux.send_keys(&["C-d"]);
    let screen = tmux.wait_for_text("needs you (1)");
    assert!(screen.contains(&format!("detached; agent {id} goes on")), "{screen}");
    tmux.send_keys(&["x"]);
    tmux.wait_for_text(&format!("end agent {id}"));
    tmux.send_keys(&["y"]);
    tmux.wait_for_text("finished (1)");
    fleet.wait_for(&id, "killed");
    leave(&tmux);
}

#[test]
fn t25_a_question_is_answered_in_the_view_after_it_was_read() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("all done")]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let tmux = open(&fleet);
    tmux.wait_for_text("needs you (1)");
    // Typed ahead: none of these may answer.
    tmux.send_keys(&["y", "y", "y"]);
    let screen = tmux.wait_for_text("y allow once");
    assert!(screen.contains("touch asked-for"), "{screen}");
    wait_until_read(&tmux);
    assert!(!fleet.worktree(&id).join("asked-for").exists());
    tmux.send_keys(&["y"]);
    tmux.wait_for_text("finished (1)");
    assert!(fleet.worktree(&id).join("asked-for").exists());
    leave(&tmux);
}

#[test]
fn the_dispatch_line_starts_an_agent_and_a_refusal_gives_the_line_back() {
    let fleet = Fleet::new(script![text("all done")]);
    let tmux = open(&fleet);
    tmux.wait_for_text("there are no agents");
    let provider = fleet.place.server.args(fleet.place.protocol).join(" ");
    tmux.send_keys(&["Tab"]);
    tmux.send_text(&format!("@nobody {provider} --label made do it"));
    tmux.send_keys(&["Enter"]);
    let screen = tmux.wait_for_text("there is no agent type");
    assert!(screen.contains("+ @nobody"), "{screen}");
    // The type goes, the rest stays.
    tmux.send_keys(&["C-a", "Delete", "Delete", "Delete", "Delete", "Delete", "Delete", "Delete", "Enter"]);
    let screen = tmux.wait_for_text("finished (1)");
    assert!(screen.contains("made"), "{screen}");
    assert_eq!(fleet.row("made")["prompt"], "do it");
    tmux.send_keys(&["Tab"]);
    leave(&tmux);
}

#[test]
fn a_peek_shows_the_last_lines_and_a_reply_reaches_the_agent() {
    let fleet = Fleet::new(script![text("the first answer"), text("the second answer"), text("the third")]);
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.wait_for(&id, "idle");
    let tmux = open(&fleet);
    tmux.wait_for_text("working (1)");
    tmux.send_keys(&["p"]);
    tmux.wait_for_text("the first answer");
    tmux.send_text("and now?");
    tmux.send_keys(&["Enter"]);
    // What it does next comes into the peek by itself.
    tmux.wait_for_text("the second answer");
    back(&tmux);
    fleet.run(["stop", &id]).ok();
    tmux.wait_for_text("finished (1)");
    // A reply to one that has ended lets it go on.
    tmux.send_keys(&["p"]);
    tmux.wait_for_text("a reply lets it go on");
    tmux.send_text("once more");
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("the third");
    back(&tmux);
    leave(&tmux);
}

#[test]
fn what_an_agent_changed_is_shown_and_lands() {
    let fleet = Fleet::new(script![write("made.txt", "a new line\n"), text("all done")]);
    let id = fleet.bg("the task", ["--permission-mode", "accept-edits", "--label", "maker"]);
    fleet.wait_for(&id, "done");
    let tmux = open(&fleet);
    tmux.wait_for_text("finished (1)");
    tmux.send_keys(&["d"]);
    let screen = tmux.wait_for_text("+a new line");
    assert!(screen.contains("not committed yet: made.txt"), "{screen}");
    back(&tmux);
    tmux.send_keys(&["m"]);
    let screen = tmux.wait_for_text("y lands it");
    for part in ["it merges into main", "committed first: made.txt", "suggested message:", "  the task"] {
        assert!(screen.contains(part), "{part:?} is not in {screen}");
    }
    assert!(!fleet.place.repo.join("made.txt").exists());
    // A key that comes before the page can have been read lands nothing.
    tmux.wait_for("the work has landed", |screen| {
        if screen.contains("y lands it") {
            tmux.send_keys(&["y"]);
        }
        let mut head = std::process::Command::new("git");
        head.args(["rev-parse", "--quiet", "--verify", "HEAD^2"]).current_dir(&fleet.place.repo);
        head.output().unwrap().status.success()
    });
    assert_eq!(fleet.place.env.read(fleet.place.repo.join("made.txt")), "a new line\n");
    assert_eq!(fleet.place.env.git(&fleet.place.repo, &["log", "--format=%s", "-1", "HEAD^2"]), "the task");
    // One more `y` may have come to the list.
    tmux.wait_for("it has left", |screen| {
        let is_left = screen.contains("left with 0");
        if !is_left {
            tmux.send_keys(&["q"]);
        }
        is_left
    });
}

#[test]
fn several_marked_agents_are_stopped_and_resumed_together() {
    let fleet = Fleet::new(script![text("a"), text("b"), text("c"), text("d")]);
    let ids = [fleet.bg("one", ["--interactive"]), fleet.bg("two", ["--interactive"])];
    for id in &ids {
        fleet.wait_for(id, "idle");
    }
    let tmux = open(&fleet);
    tmux.wait_for_text("working (2)");
    tmux.send_keys(&["Space", "Space", "x"]);
    tmux.wait_for_text("end 2 agents");
    tmux.send_keys(&["y"]);
    tmux.wait_for_text("finished (2)");
    tmux.send_keys(&["Home", "Space", "Space", "r"]);
    tmux.wait_for_text("working (2)");
    leave(&tmux);
}

#[test]
fn the_view_outlives_its_daemon_and_says_when_an_agent_cannot_be_opened() {
    let fleet = Fleet::new(script![text("a")]);
    fleet.settings("[ui]\nstart = \"agents\"\n");
    let id = fleet.bg("one", ["--interactive"]);
    fleet.wait_for(&id, "idle");
    let tmux = Tmux::start(&fleet.place.env, 110, 30);
    start(&tmux, &fleet, "");
    tmux.wait_for_text("working (1)");
    let status = fleet.run(["daemon", "status", "--json"]).ok().json::<serde_json::Value>();
    let pid = |status: &serde_json::Value| i32::try_from(status["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid(&status)).unwrap(), Signal::KILL).unwrap();
    // Another daemon comes, and its news are shown.
    fleet.run(["stop", &id]).ok();
    tmux.wait_for_text("finished (1)");
    tmux.send_keys(&["r"]);
    tmux.wait_for_text("working (1)");
    // It counts as working before it listens.
    fleet.wait_for(&id, "idle");
    // Nobody can be reached at its socket. Whoever does not want to wait is back in the view, and is told.
    let socket = fleet.row(&id)["socket"].as_str().unwrap().to_owned();
    std::fs::remove_file(&socket).unwrap();
    std::fs::create_dir(&socket).unwrap();
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text(&format!("opening agent {id}; Ctrl+C goes back"));
    tmux.send_keys(&["C-c"]);
    tmux.wait_for_text(&format!("agent {id} was not opened"));
    tmux.wait_for_text("working (1)");
    leave(&tmux);
}

#[test]
fn agents_of_other_repos_are_shown_and_stopped_from_here() {
    let fleet = Fleet::new(script![text("a")]);
    let env = &fleet.place.env;
    let other = env.repo();
    let args = fleet.place.server.args(fleet.place.protocol);
    let bg = env.start("caliban", &args).args(["--bg", "there", "--label", "second", "--interactive"]);
    let there = id_of(&bg.dir(&other).output().ok());
    let tmux = open(&fleet);
    tmux.wait_for_text("there are no agents");
    tmux.send_keys(&["a"]);
    let name = other.file_name().unwrap().to_str().unwrap();
    tmux.wait_for_text(&format!("{name}:{there} second"));
    // Its daemon's news come by themselves.
    tmux.wait_for_text("working (1)");
    tmux.send_keys(&["x"]);
    tmux.wait_for_text("end agent");
    tmux.send_keys(&["y"]);
    tmux.wait_for_text("finished (1)");
    tmux.send_keys(&["a"]);
    tmux.wait_for_text("there are no agents");
    leave(&tmux);
}

#[test]
fn conflicts_are_told_before_anything_lands() {
    let fleet = Fleet::new(script![
        bash("echo theirs > shared && git add -A && git commit -qm theirs"),
        text("done")
    ]);
    let id = fleet.bg("the task", ["--permission-mode", "unattended", "--allow", "Bash(*)"]);
    fleet.wait_for(&id, "done");
    let repo = &fleet.place.repo;
    fleet.place.env.write(repo.join("shared"), "ours\n");
    for args in [["add", "-A"].as_slice(), &["commit", "-qm", "ours"]] {
        fleet.place.env.git(repo, args);
    }
    let tmux = open(&fleet);
    tmux.wait_for_text("finished (1)");
    tmux.send_keys(&["m"]);
    let screen = tmux.wait_for_text("conflicts in shared");
    assert!(!screen.contains("y lands it"), "{screen}");
    tmux.send_keys(&["y"]);
    back(&tmux);
    assert_eq!(fleet.place.env.read(repo.join("shared")), "ours\n");
    leave(&tmux);
}

#[test]
fn an_agent_without_a_label_is_called_by_its_task_without_marks_and_line_ends_are_drawn() {
    let fleet = Fleet::new(script![bash("touch one\ntouch two"), text("all done")]);
    let id = fleet.bg("# Fix **it**", []);
    fleet.wait_for_ask(&id);
    let tmux = open(&fleet);
    let screen = tmux.wait_for_text("asks: Bash touch one ↵ touch two");
    assert!(screen.contains(&format!("{id} Fix it")), "{screen}");
    let list = fleet.run(["agents", "list"]).ok().stdout;
    assert!(list.contains("asks: Bash touch one ↵ touch two") && !list.contains('␊'), "{list}");
    leave(&tmux);
}
