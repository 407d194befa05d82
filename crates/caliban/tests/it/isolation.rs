//! Sub-agents in worktrees of their own (w01–w09, s10, r19), through the program.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{
    Signal, StepExt, script,
    script::{Script, ScriptStep},
    text, tool, tools, wait_until,
};

use crate::place::Place;

const TASK: &str = "the parent's task";
const EDITS: [&str; 2] = ["--permission-mode", "accept-edits"];
const UNATTENDED: [&str; 2] = ["--permission-mode", "unattended"];

/// A parent that gives one task to a sub-agent in a worktree named `w`, and says `parent done`.
fn isolated(worktree: Value, child: Vec<ScriptStep>) -> Script {
    let input =
        json!({"prompt": "the child's task", "isolation": "worktree", "label": "w", "worktree": worktree});
    let mut steps = vec![tool("AgentTool", input).on_first(TASK), text("parent done").on_first(TASK)];
    steps.extend(child.into_iter().map(|step| step.on_first("the child's task")));
    Script { steps }
}

fn write(path: &str, content: &str) -> ScriptStep {
    tool("Write", json!({"file_path": path, "content": content}))
}

fn bash(command: &str) -> ScriptStep {
    tool("Bash", json!({"command": command}))
}

/// What the parent got back.
fn result(place: &Place) -> (String, bool) {
    let records = place.transcript();
    let ended = records.iter().find(|record| record["event"] == "call_ended").unwrap();
    (ended["content"][0]["text"].as_str().unwrap().to_owned(), ended["is_error"] == true)
}

fn worktree(place: &Place) -> PathBuf {
    place.repo.join(".caliban/worktrees/w")
}

fn branches(place: &Place) -> String {
    place.env.git(&place.repo, &["branch", "--list", "caliban/*", "--format", "%(refname:short)"])
}

/// The parent's own tree, as git sees it: nothing may have changed.
fn assert_untouched(place: &Place) {
    assert_eq!(place.env.git(&place.repo, &["status", "--porcelain"]), "");
}

#[test]
fn w02_w06_what_it_commits_is_on_its_branch_and_the_worktree_goes() {
    let commit = "git add -A && git commit -qm 'made by the child' && pwd";
    let place = Place::new(isolated(
        json!({}),
        vec![write("made.txt", "by the child\n"), bash(commit), text("made")],
    ));
    assert_eq!(place.ask(TASK, UNATTENDED).ok().stdout, "parent done\n");
    assert!(!place.repo.join("made.txt").exists() && !worktree(&place).exists());
    assert_untouched(&place);
    assert_eq!(branches(&place), "caliban/w");
    assert_eq!(place.env.git(&place.repo, &["show", "caliban/w:made.txt"]), "by the child");
    // The child was where it was said to be, and the parent is told what came of it.
    let sent = place.server.model_requests()[2].body["messages"].to_string();
    assert!(sent.contains(&worktree(&place).display().to_string()), "{sent}");
    let (said, failed) = result(&place);
    let commit = place.env.git(&place.repo, &["log", "-1", "--format=%h", "caliban/w"]);
    assert!(!failed && said.starts_with("made\n\n[branch caliban/w: "), "{said}");
    assert!(
        said.contains(&format!("commit {}", &commit[..7])) && said.contains(" made by the child\n"),
        "{said}"
    );
    assert!(said.contains("made.txt\n") && said.contains("git merge caliban/w"), "{said}");
    // Ordinary git takes it over (w09).
    place.env.git(&place.repo, &["merge", "--quiet", "caliban/w"]);
    assert_eq!(place.env.read(place.repo.join("made.txt")), "by the child\n");
}

#[test]
fn r19_what_it_does_not_commit_is_not_lost() {
    let place = Place::new(isolated(
        json!({}),
        vec![
            write("made.txt", "not committed\n"),
            tool("Read", json!({"file_path": "README.md"})),
            tool(
                "Edit",
                json!({"file_path": "README.md", "old_string": "# A repo", "new_string": "# Changed"}),
            ),
            text("made"),
        ],
    ));
    place.ask(TASK, EDITS).ok();
    assert!(!worktree(&place).exists());
    assert_untouched(&place);
    // On its branch or under a ref of its own: byte for byte, and the parent is told where.
    let (said, failed) = result(&place);
    assert!(!failed, "{said}");
    let refs = place.env.git(
        &place.repo,
        &["for-each-ref", "--format=%(refname)", "refs/heads/caliban", "refs/caliban/rescue"],
    );
    let kept: Vec<&str> = refs
        .lines()
        .filter(|name| {
            let show = |path: &str| place.env.git(&place.repo, &["ls-tree", "--name-only", name, path]);
            show("made.txt") == "made.txt"
                && place.env.git(&place.repo, &["show", &format!("{name}:made.txt")]) == "not committed"
                && place.env.git(&place.repo, &["show", &format!("{name}:README.md")]) == "# Changed"
        })
        .collect();
    assert!(!kept.is_empty(), "{refs}\n{said}");
    assert!(
        kept.iter().any(|name| said.contains(name.trim_start_matches("refs/heads/"))),
        "{kept:?}\n{said}"
    );
}

#[test]
fn w06_one_that_changed_nothing_leaves_nothing() {
    let place = Place::new(isolated(json!({}), vec![tool("Glob", json!({"pattern": "*"})), text("looked")]));
    place.ask(TASK, EDITS).ok();
    assert!(!worktree(&place).exists());
    assert_eq!(branches(&place), "");
    assert_untouched(&place);
    let (said, failed) = result(&place);
    assert_eq!((said.trim_end(), failed), ("looked\n\n[it changed no files]", false));
}

#[test]
fn w07_keeping_keeps_the_worktree_and_its_branch() {
    let mut place = Place::new(isolated(json!({}), vec![write("made.txt", "kept\n"), text("made")]));
    place.env.set("CALIBAN_KEEP_WORKTREES", "1");
    place.ask(TASK, EDITS).ok();
    assert_eq!(place.env.read(worktree(&place).join("made.txt")), "kept\n");
    assert_eq!(branches(&place), "caliban/w");
    assert_untouched(&place);
    let (said, _) = result(&place);
    assert!(said.contains(&format!("[the worktree stays at {}]", worktree(&place).display())), "{said}");
}

#[test]
fn w02_nothing_can_be_written_into_the_parents_tree() {
    let place = Place::new(script![]);
    let readme = place.repo.join("README.md");
    place.server.set_script(isolated(
        json!({}),
        vec![
            tools([
                ("Read", json!({"file_path": readme})),
                ("Write", json!({"file_path": readme, "content": "overwritten"})),
                ("Write", json!({"file_path": "../../../escaped.txt", "content": "x"})),
            ]),
            text("tried"),
        ],
    ));
    place.ask(TASK, EDITS).ok();
    assert_eq!(place.env.read(&readme), "# A repo\n");
    assert!(!place.repo.join("escaped.txt").exists());
    let (said, _) = result(&place);
    assert!(said.contains("call(s) of the sub-agent were refused"), "{said}");
}

#[test]
fn w03_w04_w05_the_call_says_what_is_checked_out() {
    let list = "ls -A; git rev-parse --abbrev-ref HEAD; git log -1 --format=%s";
    let run = |worktree: Value| {
        let place = Place::new(script![]);
        place.env.write(place.repo.join("src/main.txt"), "main");
        place.env.write(place.repo.join("docs/guide.txt"), "guide");
        place.env.git(&place.repo, &["add", "-A"]);
        place.env.git(&place.repo, &["commit", "-qm", "second commit"]);
        place.env.write(place.repo.join("target/built"), "heavy");
        place.env.write(place.repo.join(".git/info/exclude"), "target\n");
        place.server.set_script(isolated(worktree, vec![bash(list), text("listed")]));
        place.ask(TASK, UNATTENDED).ok();
        place
    };
    // What the child saw: the result of its own command.
    let seen = |place: &Place| {
        let requests = place.server.model_requests();
        let result =
            requests[2].body["messages"].as_array().unwrap().last().unwrap()["content"][0]["content"].clone();
        let text = result
            .as_str()
            .map(str::to_owned)
            .unwrap_or_else(|| result[0]["text"].as_str().unwrap().to_owned());
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let place = run(json!({}));
    assert_eq!(seen(&place), [".git", "README.md", "docs", "src", "caliban/w", "second commit"]);
    let place = run(json!({"sparse_paths": ["src"]}));
    assert_eq!(seen(&place), [".git", "README.md", "src", "caliban/w", "second commit"]);
    let place = run(json!({"base_ref": "HEAD~1"}));
    assert_eq!(seen(&place), [".git", "README.md", "caliban/w", "first commit"]);
    let place = run(json!({"symlink_directories": ["target"]}));
    assert_eq!(seen(&place), [".git", "README.md", "docs", "src", "target", "caliban/w", "second commit"]);
    assert_eq!(place.env.read(place.repo.join("target/built")), "heavy");
    // Nonsense is an error that the model can read, and leaves nothing.
    for (worktree, word) in [
        (json!({"symlink_directories": ["nowhere"]}), "nowhere"),
        (json!({"symlink_directories": ["../.."]}), ".."),
        (json!({"base_ref": "no-such-ref"}), "no-such-ref"),
        (json!({"base_ref": "--upload-pack=touch owned"}), "upload-pack"),
    ] {
        let place = run(worktree);
        let (said, failed) = result(&place);
        assert!(failed && said.contains(word), "{said}");
        assert_eq!((branches(&place), self::worktree(&place).exists()), (String::new(), false), "{word}");
    }
}

#[test]
fn w08_two_at_once_by_one_name_conflict_and_by_different_names_do_not() {
    let call = |prompt: &str, label: &str| {
        ("AgentTool", json!({"prompt": prompt, "isolation": "worktree", "label": label}))
    };
    let script = |labels: [&str; 2]| Script {
        steps: vec![
            tools([call("part one", labels[0]), call("part two", labels[1])]).on_first(TASK),
            text("parent done").on_first(TASK),
            write("file.txt", "one\n").on_first("part one"),
            text("one").on_first("part one"),
            write("file.txt", "two\n").on_first("part two"),
            text("two").on_first("part two"),
        ],
    };
    let ends = |place: &Place| {
        let mut ends: Vec<bool> = place
            .transcript()
            .iter()
            .filter(|record| record["event"] == "call_ended")
            .map(|record| record["is_error"] == true)
            .collect();
        ends.sort_unstable();
        ends
    };
    let place = Place::new(script(["a", "b"]));
    place.ask(TASK, EDITS).ok();
    assert_eq!(ends(&place), [false, false]);
    assert_untouched(&place);

    // The same name: whether they meet depends on time, so the first is made to last.
    let place = Place::new(isolated(json!({}), vec![bash("touch started; sleep 600"), text("never")]));
    let mut running = place.caliban().args(["-p", TASK]).args(UNATTENDED).spawn();
    wait_until("the child works", || worktree(&place).join("started").exists());
    let second = place.ask(&format!("{TASK}, once more"), UNATTENDED).ok();
    assert_eq!(second.stdout, "parent done\n");
    let said: Vec<String> = place
        .sessions()
        .iter()
        .flat_map(|session| {
            place.env.read(session.join("transcript.jsonl")).lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .filter(|line| line.contains("\"event\":\"call_ended\""))
        .collect();
    assert!(
        said.len() == 1 && said[0].contains("\"is_error\":true") && said[0].contains("caliban/w"),
        "{said:?}"
    );
    assert!(worktree(&place).join("started").exists(), "the first one's is left alone");
    running.signal(Signal::INT);
    assert_eq!(running.wait().code, 130);
}

#[test]
fn a_label_that_was_used_before_gets_a_number() {
    let child = |content: &str| isolated(json!({}), vec![write("made.txt", content), text("made")]);
    let place = Place::new(child("first\n"));
    place.ask(TASK, EDITS).ok();
    for (content, branch) in [("second\n", "caliban/w-2"), ("third\n", "caliban/w-3")] {
        place.server.set_script(child(content));
        place.ask(TASK, EDITS.into_iter().chain(["--continue"])).ok();
        let records = place.transcript();
        let ended = records.iter().rfind(|record| record["event"] == "call_ended").unwrap();
        let said = ended["content"][0]["text"].as_str().unwrap();
        assert_eq!(ended["is_error"], false, "{said}");
        assert!(said.contains(&format!("[w is the name of earlier work; this is on {branch}]\n")), "{said}");
        assert!(said.contains(&format!("git merge {branch}")), "{said}");
        assert_eq!(place.env.git(&place.repo, &["show", &format!("{branch}:made.txt")]), content.trim());
    }
    assert_eq!(place.env.git(&place.repo, &["show", "caliban/w:made.txt"]), "first");
}

#[test]
fn a_worktree_whose_agent_cannot_begin_is_finished() {
    let place = Place::new(isolated(json!({}), vec![text("never")]));
    // The setup takes the directory away, so that nobody can work in it.
    let settings = "[worktrees]\nsetup = 'cd .. && rm -rf w && touch w'\n";
    place.env.write(place.env.config().join("caliban/settings.toml"), settings);
    place.ask(TASK, EDITS).ok();
    let (said, failed) = result(&place);
    assert!(failed && said.starts_with("cannot work in "), "{said}");
    assert_eq!(branches(&place), "");
    assert!(!place.env.git(&place.repo, &["worktree", "list"]).contains("/w "));
}

#[test]
fn w03_a_helper_of_an_agent_in_a_worktree_begins_where_that_one_is() {
    let commit = "echo by the parent > parent.txt && git add -A && git commit -qm 'by the parent'";
    let isolated = json!({"prompt": "the child's task", "isolation": "worktree", "label": "w"});
    let fleet = crate::fleet::Fleet::new(Script {
        steps: vec![
            bash(commit).on_first(TASK),
            tool("AgentTool", isolated).on_first(TASK),
            text("parent done").on_first(TASK),
            bash("cat parent.txt && git log -1 --format=%s > seen.txt").on_first("the child's task"),
            text("done").on_first("the child's task"),
        ],
    });
    let id = fleet.bg(TASK, UNATTENDED);
    fleet.run(["agents", "wait", &id]).ok();
    let seen = fleet.place.env.git(&fleet.place.repo, &["show", "caliban/w:seen.txt"]);
    assert_eq!(seen, "by the parent");
    assert!(!fleet.place.repo.join("parent.txt").exists());
}

#[test]
fn w02_a_background_helper_of_an_agent_in_a_worktree_has_one_of_its_own() {
    for isolation in ["none", "worktree"] {
        let commit = "echo by the parent > parent.txt && git add -A && git commit -qm 'by the parent'";
        let helper = json!({"prompt": "the child's task", "isolation": isolation, "background": true, "label": "child"});
        let fleet = crate::fleet::Fleet::new(Script {
            steps: vec![
                bash(commit).on_first(TASK),
                tool("AgentTool", helper).on_first(TASK),
                text("parent done").on_first(TASK),
                bash("cat parent.txt > seen.txt").on_first("the child's task"),
                text("done").on_first("the child's task"),
            ],
        });
        let id = fleet.bg(TASK, UNATTENDED);
        fleet.run(["agents", "wait", &id]).ok();
        fleet.run(["agents", "wait", "child"]).ok();
        let child = fleet.row("child");
        let worktree = PathBuf::from(child["worktree"].as_str().unwrap());
        assert_ne!(worktree, fleet.worktree(&id));
        assert_eq!(fleet.place.env.read(worktree.join("seen.txt")), "by the parent\n");
        assert_untouched(&fleet.place);
    }
}

#[test]
fn plan_mode_makes_no_worktree() {
    for background in [false, true] {
        let input = json!({
            "prompt": "the child's task", "isolation": "worktree", "label": "w", "background": background
        });
        let place = Place::new(script![tool("AgentTool", input), text("parent done")]);
        let settings = "[worktrees]\nsetup = 'touch ~/set-up'\n";
        place.env.write(place.env.config().join("caliban/settings.toml"), settings);
        place.ask(TASK, ["--permission-mode", "plan"]).ok();
        let said = "plan mode changes nothing, so no worktree is made; leave out `isolation`";
        assert_eq!(result(&place), (said.to_owned(), true));
        assert_eq!(branches(&place), "");
        assert!(!place.repo.join(".caliban").exists() && !place.env.home().join("set-up").exists());
    }
}

#[test]
fn r19_a_cancelled_child_loses_nothing() {
    let place = Place::new(isolated(
        json!({}),
        vec![write("half.txt", "half done\n"), bash("touch started; sleep 600"), text("never")],
    ));
    let mut running = place.caliban().args(["-p", TASK]).args(UNATTENDED).spawn();
    wait_until("the child works", || worktree(&place).join("started").exists());
    running.signal(Signal::INT);
    assert_eq!(running.wait().code, 130);
    wait_until("its processes are gone", || place.env.processes().is_empty());
    let refs = place
        .env
        .git(&place.repo, &["for-each-ref", "--format=%(refname)", "refs/heads/caliban", "refs/caliban"]);
    let kept = refs.lines().any(|name| {
        place.env.git(&place.repo, &["ls-tree", "--name-only", name, "half.txt"]) == "half.txt"
            && place.env.git(&place.repo, &["show", &format!("{name}:half.txt")]) == "half done"
    });
    assert!(kept || worktree(&place).join("half.txt").exists(), "{refs}");
    assert_untouched(&place);
}

#[test]
fn r19_a_killed_program_leaves_the_work_where_it_is() {
    let place = Place::new(isolated(
        json!({}),
        vec![write("half.txt", "half done\n"), bash("touch started; sleep 600"), text("never")],
    ));
    let mut running = place.caliban().args(["-p", TASK]).args(UNATTENDED).spawn();
    running.close_stdin();
    wait_until("the child works", || worktree(&place).join("started").exists());
    running.signal(Signal::KILL);
    running.wait();
    wait_until("its processes are gone", || place.env.processes().is_empty());
    assert_eq!(place.env.read(worktree(&place).join("half.txt")), "half done\n");
    let id = place.session_id();
    let output = place.caliban().args(["--resume", &id]).args(UNATTENDED).output().ok();
    assert_eq!(output.stdout, "parent done\n");
    assert_eq!(place.env.read(worktree(&place).join("half.txt")), "half done\n");
}

#[test]
fn w01_without_a_repo_or_a_commit_the_model_is_told_why_not() {
    let mut place = Place::new(isolated(json!({}), vec![text("never")]));
    place.repo = place.env.work();
    place.ask(TASK, EDITS).ok();
    let (said, failed) = result(&place);
    assert!(failed && said.contains("needs a git repository"), "{said}");

    let mut place = Place::new(isolated(json!({}), vec![text("never")]));
    place.repo = place.env.root().join("unborn");
    std::fs::create_dir(&place.repo).unwrap();
    place.env.git(&place.repo, &["init", "--quiet"]);
    place.ask(TASK, EDITS).ok();
    let (said, failed) = result(&place);
    assert!(failed && said.contains("no commit"), "{said}");
}
