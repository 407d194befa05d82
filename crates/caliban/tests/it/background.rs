//! What is handed to the background: what of it is seen to be wrong at once, what it may spend, what holds when it goes on.

use serde_json::{Value, json};
use testkit::{StepExt, script, text, tool, wait_until};

use crate::fleet::{Fleet, bash, id_of};

fn spec(fleet: &Fleet, row: &Value) -> Value {
    let dir = row["dir"].as_str().unwrap().to_owned();
    serde_json::from_str(&fleet.place.env.read(dir + "/spec.json")).unwrap()
}

#[test]
fn r20_background_helpers_and_their_parent_spend_from_one_budget() {
    let helper = |name: &str| json!({"prompt": "help", "background": true, "label": name});
    let fleet = Fleet::new(script![
        tool("AgentTool", helper("one")).on_first("the parent's task"),
        text("handed over").on_first("the parent's task"),
        tool("AgentTool", helper("two")).on_first("the parent's task"),
        text("handed over, too").on_first("the parent's task"),
        text("never said").on_first("the parent's task"),
        text("helped").costs(30_000, 0).on_first("help").forever(),
    ]);
    let parent = fleet.bg(
        "the parent's task",
        ["--permission-mode", "unattended", "--budget-tokens", "60000", "--isolation", "none"],
    );
    let helpers_end = |count: usize| {
        fleet.run(["agents", "wait", &parent]).ok();
        let rows = fleet.rows();
        let helpers: Vec<&Value> = rows.iter().filter(|row| row["parent"] == json!(parent)).collect();
        assert_eq!(helpers.len(), count, "{rows:#?}");
        for row in helpers {
            fleet.run(["agents", "wait", row["id"].as_str().unwrap()]).ok();
        }
    };
    helpers_end(1);
    // What the first helper left is there: nothing was given away.
    fleet.run(["resume", &parent, "--prompt", "one more"]).ok();
    helpers_end(2);
    let spent = fleet.row(&parent)["usage"]["input"].as_u64().unwrap();
    assert!(spent < 30_000, "the parent itself has spent little: {spent}");
    // The next request of anybody does not fit any more.
    fleet.run(["resume", &parent, "--prompt", "and another"]).ok();
    fleet.run(["agents", "wait", &parent]).expect_code(4);
    let row = fleet.row(&parent);
    let words = format!("the token budget of {parent} and those it started is used up");
    assert!(row["ending"].to_string().contains(&words), "{row:#}");
    assert!(!fleet.run(["logs", &parent]).ok().stdout.contains("never said"));
}

#[test]
fn what_is_piped_to_bg_is_appended_to_the_prompt() {
    let fleet = Fleet::new(script![text("reviewed")]);
    let run = fleet.place.caliban().args(["--bg", "review this change"]).stdin("the piped change\n");
    let id = id_of(&run.output().ok());
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(spec(&fleet, &fleet.row(&id))["prompt"], "review this change\n\nthe piped change");
}

#[test]
fn what_cannot_work_is_refused_at_once() {
    let fleet = Fleet::new(script![]);
    for (flags, words) in [
        (["--sparse", "nosuch"], "--sparse: there is no 'nosuch' in HEAD"),
        (["--tools", "Raed,Write"], "--tools: there is no tool 'Raed'"),
        (["--add-dir", "/nosuch"], "--add-dir: there is no directory /nosuch"),
        (["--symlink", "nosuch"], "--symlink: 'nosuch': it does not exist"),
    ] {
        let refused = fleet.place.caliban().args(["--bg", "the task"]).args(flags).output().expect_code(2);
        assert!(refused.stderr.contains(words), "{flags:?}: {}", refused.stderr);
    }
    let refused = fleet.run(["--bg", "the task", "--script", "nosuch.json"]).expect_code(1);
    assert!(refused.stderr.contains("cannot use the script"), "{}", refused.stderr);
    let refused = fleet.run(["--bg", "- fix a\n- fix b"]).expect_code(2);
    let words = "a prompt that begins with a dash goes behind an equals sign: --bg=\"- fix a\"";
    assert!(refused.stderr.contains(words), "{}", refused.stderr);
    assert_eq!(fleet.rows(), Vec::<Value>::new());
}

#[test]
fn what_is_not_committed_is_not_there_and_that_is_said() {
    let fleet = Fleet::new(script![text("done").forever()]);
    let bg = || fleet.place.caliban().args(["--bg", "the task"]).output().ok();
    let clean = bg();
    assert!(!clean.stderr.contains("uncommitted"), "{}", clean.stderr);
    fleet.place.env.write(fleet.place.repo.join("one.txt"), "1");
    fleet.place.env.write(fleet.place.repo.join("README.md"), "changed");
    let dirty = bg();
    assert!(dirty.stderr.contains("\n2 uncommitted changes are not in it\n"), "{}", dirty.stderr);
    for output in [clean, dirty] {
        fleet.run(["agents", "wait", &id_of(&output)]).ok();
    }
}

#[test]
fn a_limit_that_was_reached_can_be_raised_at_a_resume() {
    let fleet = Fleet::new(script![bash("true"), bash("true"), bash("true"), text("done")]);
    let flags = ["--permission-mode", "unattended", "--max-turns", "1", "--budget-tokens", "1000000"];
    let id = fleet.bg("the task", flags);
    fleet.run(["agents", "wait", &id]).expect_code(4);
    fleet.run(["resume", &id, "--max-turns", "2"]).ok();
    fleet.run(["agents", "wait", &id]).expect_code(4);
    fleet.run(["resume", &id, "--budget-tokens", "2000000", "--max-turns", "5"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(fleet.row(&id)["last_text"], "done");
}

#[test]
fn an_always_holds_after_a_resume() {
    let fleet = Fleet::new(script![bash("touch one"), text("first"), bash("touch one"), text("second")]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    fleet.run(["approve", &id, "--always"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    std::fs::remove_file(fleet.worktree(&id).join("one")).unwrap();
    fleet.run(["resume", &id, "--prompt", "again"]).ok();
    wait_until("it asks or has ended", || {
        let row = fleet.row(&id);
        row["state"] == "done" || !row["asks"].as_array().unwrap().is_empty()
    });
    assert_eq!((fleet.state(&id).as_str(), fleet.worktree(&id).join("one").exists()), ("done", true));
}

#[test]
fn f18_what_is_kept_of_a_background_agent_is_shown_like_a_session() {
    let fleet = Fleet::new(script![bash("echo hello"), text("the answer")]);
    let id = fleet.bg("the task", ["--permission-mode", "unattended"]);
    fleet.run(["agents", "wait", &id]).ok();
    let audit = fleet.run(["sessions", "audit", &id]).ok().stdout;
    assert!(audit.contains("echo hello"), "{audit}");
    for verb in ["show", "replay"] {
        let shown = fleet.run(["sessions", verb, &id]).ok().stdout;
        assert!(shown.contains("the task"), "{verb}: {shown}");
    }
}

#[test]
fn a_resume_that_is_refused_hides_nothing_of_the_work() {
    let fleet = Fleet::new(script![crate::fleet::write("new.txt", "new\n"), text("done")]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let before = fleet.row(&id);
    let transcript = std::path::Path::new(before["dir"].as_str().unwrap()).join("transcript.jsonl");
    std::fs::rename(&transcript, transcript.with_extension("away")).unwrap();
    std::fs::create_dir(&transcript).unwrap();
    let refused = fleet.run(["resume", &id]).expect_code(1).stderr;
    assert!(refused.contains("cannot go on where it was"), "{refused}");
    let after = fleet.row(&id);
    for field in ["state", "branch", "worktree", "base_commit", "turns", "usage"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    let diff = fleet.run(["agents", "diff", &id]).ok().stdout;
    assert!(diff.contains("new.txt"), "{diff}");
}

#[test]
fn started_below_the_root_it_works_below_the_root_and_reads_what_is_said_there() {
    let fleet = Fleet::new(script![bash("pwd > where.txt"), text("done")]);
    let (env, repo) = (&fleet.place.env, &fleet.place.repo);
    env.write(repo.join("pkg/b/AGENTS.md"), "be careful in b\n");
    env.git(repo, &["add", "-A"]);
    env.git(repo, &["commit", "-qm", "pkg"]);
    let run = fleet.place.caliban().args(["--bg", "the task", "--permission-mode", "unattended"]);
    let id = id_of(&run.dir(repo.join("pkg/b")).output().ok());
    fleet.run(["agents", "wait", &id]).ok();
    let place = fleet.worktree(&id).join("pkg/b");
    assert_eq!(env.read(place.join("where.txt")), format!("{}\n", place.display()));
    let heard = fleet.place.server.model_requests()[0].body["messages"].to_string();
    assert!(heard.contains("be careful in b"), "{heard}");
}

#[test]
fn rm_done_removes_who_is_done_and_landed_and_says_who_stays() {
    let fleet = Fleet::new(script![
        text("nothing to do").on_first("look"),
        bash("echo 1 > a.txt && git add -A && git commit -qm a").on_first("land"),
        text("done").on_first("land"),
        bash("echo 1 > b.txt && git add -A && git commit -qm b").on_first("keep"),
        text("done").on_first("keep"),
        crate::fleet::write("c.txt", "c").on_first("forget"),
        text("done").on_first("forget"),
    ]);
    let flags = ["--permission-mode", "unattended"];
    let [look, land, keep, forget] = ["look", "land", "keep", "forget"].map(|task| fleet.bg(task, flags));
    fleet.run(["agents", "wait", &look, &land, &keep, &forget]).ok();
    fleet.run(["agents", "merge", &land]).ok();
    let removed = fleet.run(["rm", "--done"]).ok();
    assert!(removed.stdout.contains(&format!("{look} removed")), "{}", removed.stdout);
    assert!(removed.stdout.contains(&format!("{land} removed")), "{}", removed.stdout);
    let stays = format!("{keep} stays: its commits are on no branch of yours; caliban agents merge {keep}\n");
    assert!(removed.stderr.contains(&stays), "{}", removed.stderr);
    let stays = format!("{forget} stays: it has work that is not committed\n");
    assert!(removed.stderr.contains(&stays), "{}", removed.stderr);
    let mut left: Vec<String> =
        fleet.rows().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
    let mut expected = vec![keep, forget];
    left.sort();
    expected.sort();
    assert_eq!(left, expected);
}

#[test]
fn logs_can_be_read_whole() {
    let fleet = Fleet::new(script![bash("seq 1 40"), text("counted")]);
    let id = fleet.bg("the task", ["--permission-mode", "unattended"]);
    fleet.run(["agents", "wait", &id]).ok();
    let short = fleet.run(["logs", &id]).ok().stdout;
    assert!(short.contains("\n  … 28 more lines\n") && !short.contains("\n  40\n"), "{short}");
    let whole = fleet.run(["logs", &id, "--whole"]).ok().stdout;
    assert!(whole.contains("\n  39\n  40\n") && !whole.contains("more lines"), "{whole}");
}

#[test]
fn rm_done_takes_those_whose_work_landed_as_a_squash() {
    let fleet = Fleet::new(script![
        bash("echo 1 > one.txt && git add -A && git commit -qm one"),
        text("done"),
        bash("echo 2 > two.txt && git add -A && git commit -qm two"),
        text("done again")
    ]);
    let id = fleet.bg("the task", ["--permission-mode", "unattended"]);
    fleet.run(["agents", "wait", &id]).ok();
    fleet.run(["agents", "merge", &id, "--squash"]).ok();
    // More work after the squash is not in it.
    fleet.run(["resume", &id, "--prompt", "more"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    let stays = format!("{id} stays: its commits are on no branch of yours; caliban agents merge {id}\n");
    let kept = fleet.run(["rm", "--done"]).ok();
    assert!(kept.stderr.contains(&stays) && kept.stdout.is_empty(), "{kept:?}");
    fleet.run(["agents", "merge", &id, "--squash"]).ok();
    // Nor is a squash that is on no branch any more.
    let git = |args: &[&str]| fleet.place.env.git(&fleet.place.repo, args);
    let landed = git(&["rev-parse", "HEAD"]);
    git(&["reset", "-q", "--hard", "HEAD~1"]);
    let kept = fleet.run(["rm", "--done"]).ok();
    assert!(kept.stderr.contains(&stays) && kept.stdout.is_empty(), "{kept:?}");
    git(&["reset", "-q", "--hard", &landed]);
    let removed = fleet.run(["rm", "--done"]).ok();
    assert!(removed.stdout.starts_with(&format!("{id} removed\n")), "{removed:?}");
    assert_eq!((fleet.rows(), git(&["branch", "--list", "caliban/*"])), (vec![], String::new()));
}

#[test]
fn an_agent_without_a_fence_is_started_with_a_warning_that_names_the_fenced_way() {
    let fleet = Fleet::new(script![text("done").forever()]);
    let start = |mode: &str| {
        let flags = ["--bg", "the task", "--permission-mode", mode];
        fleet.place.caliban().args(flags).output().ok().stderr
    };
    let warned = start("unattended");
    assert!(
        warned.contains("note: unattended: its commands run with your rights, without a fence"),
        "{warned}"
    );
    assert!(warned.contains("--permission-mode never-ask asks nothing and stays fenced"), "{warned}");
    assert!(!start("never-ask").contains("without a fence"));
}

#[test]
fn stop_all_ends_every_agent_of_the_repo_and_then_finds_none() {
    let fleet = Fleet::new(script![text("never")]);
    fleet.place.server.hold();
    let mut ids = [fleet.bg("the first task", []), fleet.bg("the second task", [])];
    fleet.place.server.wait_for_requests(2);
    let stopped = fleet.run(["stop", "--all"]).ok().stdout;
    let mut told: Vec<&str> = stopped.lines().collect();
    told.sort_unstable();
    ids.sort_unstable();
    assert_eq!(told, ids.each_ref().map(|id| format!("{id} killed")));
    assert!(ids.iter().all(|id| fleet.state(id) == "killed"), "{:?}", fleet.rows());
    assert_eq!(fleet.run(["stop", "--all"]).ok().stdout, "no agent of this repo is running\n");
}
