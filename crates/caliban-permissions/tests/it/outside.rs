//! A rule with `outside` is about a program in a place.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    time::{Duration, SystemTime},
};

use caliban_core::access::Access;
use caliban_permissions::{Effect, Fencing, Mode, Policy, Rule, Verdict, inherit};

use crate::place::{Place, add};

/// A project with programs: `bin/tool` beside it, `run.sh` and `web/` in it. The agent begins after they were made.
struct Work {
    place: Place,
    policy: Policy,
}

impl Work {
    fn new(rules: &[&str]) -> Self {
        let place = Place::new();
        let bin = place.home.join("bin");
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(place.at("web")).unwrap();
        fs::create_dir_all(place.at("tools")).unwrap();
        let programs = [bin.join("npm"), bin.join("python3"), bin.join("tail"), place.at("run.sh")];
        for program in programs.iter().chain([&place.at("tools/x.py")]) {
            executable(program);
        }
        let mut policy = place.policy(Mode::Default, &[]);
        policy.path = vec![place.at(".venv/bin"), bin];
        policy.began_at = Some(settled());
        rules.iter().for_each(|rule| add(&mut policy, rule));
        Self { place, policy }
    }

    fn said(&self, line: &str) -> String {
        self.said_in(line, &self.place.root)
    }

    fn said_in(&self, line: &str, cwd: &Path) -> String {
        let access = Access::Command { line: line.to_owned(), cwd: cwd.to_owned(), outside: None };
        match self.policy.decide("Bash", &[access]) {
            Verdict::Allow { fence, .. } => fence.to_string(),
            Verdict::Ask { outside, suggestions, .. } => {
                assert!(suggestions.iter().all(|rule| !rule.ends_with(" outside")), "{suggestions:?}");
                format!("ask [{}]", outside.join(", "))
            }
            Verdict::Deny { .. } => "deny".to_owned(),
        }
    }

    #[track_caller]
    fn check(&self, table: &[(&str, &str)]) {
        for (line, expected) in table {
            assert_eq!(self.said(line), *expected, "{line}");
        }
    }
}

fn executable(path: &Path) {
    fs::write(path, "#!/bin/sh\n").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Now, once the clock of the file system cannot be behind it any more.
fn settled() -> u64 {
    let now = SystemTime::now() + Duration::from_millis(40);
    while SystemTime::now() < now {
        std::thread::yield_now();
    }
    u64::try_from(now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[test]
fn a_rule_with_outside_lets_a_command_run_as_the_user_in_its_place() {
    let work = Work::new(&["Bash(npm install *) outside", "Bash(npm test *)"]);
    work.check(&[
        ("npm install", "none"),
        ("npm install left-pad 2>&1 | tail -5", "none"),
        ("timeout 60 npm install", "none"),
        ("npm test", "edit"),
        // Nothing that needs the fence goes with it.
        ("npm install && npm test", "ask [Bash(npm test) outside]"),
        ("npm install; rg x", "ask [Bash(rg x) outside]"),
        ("npm install; cat \"$x\"", "ask []"),
        ("npm run build", "ask [Bash(npm run build) outside]"),
        // Elsewhere it is another program.
        ("cd web && npm install", "ask [Bash(npm install) outside in web]"),
        ("cd web; npm install", "ask []"),
        ("cd \"$x\" && npm install", "ask []"),
        ("f() { npm install; }; f", "ask []"),
        // With other variables it is, too.
        ("PATH=.:$PATH npm install", "ask []"),
        ("NODE_OPTIONS=--require=./x.js npm install", "ask []"),
        ("export npm_config_prefix=/x; npm install", "ask []"),
        ("env HOME=/x npm install", "ask []"),
    ]);
    let why = work.policy.decide("Bash", &[work.place.command("NODE_ENV=test npm install")]);
    assert!(why.why().contains("with variables that the line sets"), "{why:?}");
    let web = work.place.at("web");
    assert_eq!(work.said_in("npm install", &web), "ask [Bash(npm install) outside in web]");
    // A rule for the fence would not help.
    let verdict = work.policy.decide("Bash", &[work.place.command("cd web && npm install")]);
    assert_eq!(verdict.allowing_flags().as_deref(), Some("--allow 'Bash(npm install) outside in web'"));
    assert!(verdict.why().ends_with(&format!("holds only in {}", work.place.root.display())), "{verdict:?}");
    let mut edits = Work::new(&["Bash(npm install *) outside"]);
    edits.policy.mode = Mode::AcceptEdits;
    edits.check(&[("npm install", "none"), ("npm test", "edit"), ("touch x", "edit")]);
    edits.check(&[("cd web && npm install", "ask [Bash(npm install) outside in web]")]);
    edits.policy.mode = Mode::Plan;
    edits.check(&[("npm install", "deny")]);
    edits.policy.mode = Mode::Default;
    add(&mut edits.policy, "deny Bash(npm install evil *)");
    edits.check(&[("npm install evil", "deny"), ("npm install", "none")]);
}

/// Seen: `git push --force origin main` became `Bash(git push *)`.
#[test]
fn always_outside_is_never_wider_than_what_was_asked() {
    let work = Work::new(&[]);
    work.check(&[
        ("git push --force origin main", "ask [Bash(git push --force origin main) outside]"),
        ("git commit -m 'it is done'", "ask [Bash(git commit -m \"it is done\") outside]"),
        ("git commit -m 'a b' 'c d' x", "ask [Bash(git commit -m \"a b\" \"c d\" x) outside]"),
        ("npm install left-pad", "ask [Bash(npm install left-pad) outside]"),
        ("git \"$x\"", "ask []"),
        ("python3 -c 'print(1)'", "ask [Bash(python3 -c \"print(1)\") outside]"),
        ("'my prog' x", "ask [Bash(\"my prog\" x) outside]"),
    ]);
}

#[test]
fn a_rule_with_outside_may_name_a_directory() {
    let work = Work::new(&["Bash(npm install *) outside in web"]);
    work.check(&[("npm install", "ask [Bash(npm install) outside]"), ("cd web && npm install", "none")]);
    let web = work.place.at("web");
    assert_eq!(work.said_in("npm install", &web), "none");
    // Not what a link puts in its place.
    fs::rename(&web, work.place.at("old")).unwrap();
    symlink(work.place.at("old"), &web).unwrap();
    assert_eq!(work.said_in("npm install", &web), "ask [Bash(npm install) outside in old]");
    let mut own = Work::new(&["Bash(npm install *) outside"]);
    own.policy.worktree = Some(own.place.at("web"));
    assert_eq!(own.said_in("npm install", &own.place.at("web")), "none");
    assert!(own.said("npm install").starts_with("ask ["));
}

/// Where links go in a circle, nobody knows what will be there when it runs.
#[test]
fn a_program_that_cannot_be_found_is_asked_about() {
    let mut work = Work::new(&[]);
    let program = work.place.home.join("bin/loop");
    symlink(&program, &program).unwrap();
    let line = program.to_str().unwrap();
    add(&mut work.policy, &format!("Bash({line} *) outside"));
    assert!(work.said(line).starts_with("ask ["), "{}", work.said(line));
    fs::remove_file(&program).unwrap();
    executable(&program);
    assert_eq!(work.said(line), "none");
}

#[test]
fn what_the_agent_may_have_written_is_asked_about() {
    let work = Work::new(&[
        "Bash(./run.sh *) outside",
        "Bash(npm install *) outside",
        "Bash(python3 *) outside",
        "Bash(tools/* *) outside",
    ]);
    let free = [
        ("./run.sh", "none"),
        ("npm install | tail -3", "none"),
        ("python3 tools/x.py", "none"),
        ("tools/x.py", "none"),
        ("python3 \"$x\"", "ask []"),
    ];
    work.check(&free);
    // A file that was there and was changed, one that is new, and a link.
    executable(&work.place.at("run.sh"));
    work.check(&[("./run.sh", "ask []"), ("python3 tools/x.py", "none")]);
    fs::rename(work.place.at("tools"), work.place.at("old")).unwrap();
    fs::create_dir(work.place.at("other")).unwrap();
    fs::rename(work.place.at("old"), work.place.at("tools")).unwrap();
    work.check(&[("tools/x.py", "ask []"), ("python3 tools/x.py", "ask []"), ("python3 -mx", "none")]);
    // A module is a file by its name, or a package.
    work.check(&[("python3 -m web.x", "none"), ("python3 -m x", "none")]);
    executable(&work.place.at("x.py"));
    executable(&work.place.at("web/__main__.py"));
    for line in ["python3 -m x", "python3 -mx", "python3 -um x --fast", "python3 -m web"] {
        work.check(&[(line, "ask []")]);
    }
    work.check(&[("python3 -m other", "none")]);
    // The first in PATH counts, also for what stands beside it.
    fs::create_dir_all(work.place.at(".venv/bin")).unwrap();
    executable(&work.place.at(".venv/bin/tail"));
    work.check(&[("npm install", "none"), ("npm install | tail -3", "ask []")]);
    executable(&work.place.at(".venv/bin/npm"));
    work.check(&[("npm install", "ask []")]);
}

/// Seen: `python3 DATA/…/tmp/x.py`, which a fenced command had written to its `/tmp`, ran outside by a rule for `python3`.
#[test]
fn a18_what_an_agent_wrote_elsewhere_is_asked_about() {
    let mut work = Work::new(&["Bash(python3 *) outside", "Edit(~/notes.py)"]);
    let tmp = work.place.home.join("data/tmp");
    fs::create_dir_all(&tmp).unwrap();
    for name in ["old.py", "notes.py"] {
        executable(&tmp.join(name));
        executable(&work.place.home.join(name));
    }
    work.policy.began_at = Some(settled());
    let line = |path: &Path| format!("python3 {}", path.display());
    let notes = work.place.home.join("notes.py");
    work.check(&[(&line(&tmp.join("old.py")), "none"), (&line(&notes), "none")]);
    // By a file tool that a rule allows there, or by another agent in its worktree.
    for path in [&notes, &work.place.home.join("old.py")] {
        executable(path);
    }
    work.check(&[(&line(&notes), "ask []"), (&line(&work.place.home.join("old.py")), "none")]);
    let other = work.place.root.join(".caliban/worktrees/other/x.py");
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    executable(&other);
    work.policy.worktree = Some(work.place.at("web"));
    add(&mut work.policy, &format!("Bash(python3 *) outside in {}", work.place.root.display()));
    work.check(&[(&line(&other), "ask []")]);
    work.policy.worktree = None;
    // Of Caliban's own directories everything is an agent's, whenever it was made.
    work.policy.agents_places = vec![work.place.home.join("data")];
    work.check(&[(&line(&tmp.join("old.py")), "ask []")]);
    symlink(tmp.join("old.py"), work.place.home.join("link.py")).unwrap();
    work.policy.began_at = Some(settled());
    work.check(&[(&line(&work.place.home.join("link.py")), "ask []")]);
}

/// Nobody knows all programs that run what they are given.
#[test]
fn a_file_that_any_program_is_given_is_looked_at() {
    let work = Work::new(&[
        "Bash(uv run *) outside",
        "Bash(go run *) outside",
        "Bash(npx *) outside",
        "Bash(sed *) outside",
        "Bash(pytest *) outside",
        "Bash(uv run python *) outside",
        "Bash(git *) outside",
    ]);
    let lines = [
        "uv run x.py",
        "go run x.go y",
        "npx ./x.js",
        "sed -f x.sed y",
        "sed -fx.sed y",
        "sed --file=x.sed y",
        "pytest -q x.py",
        "uv run python -m x",
    ];
    lines.iter().for_each(|line| work.check(&[(line, "none")]));
    ["x.py", "x.go", "x.js", "x.sed"].iter().for_each(|name| executable(&work.place.at(name)));
    lines.iter().for_each(|line| work.check(&[(line, "ask []")]));
    // What is no file there is a word.
    work.check(&[("uv run pytest", "none"), ("pytest -q web", "none")]);
    // Some take files and surely run none of them.
    work.check(&[("git add x.py", "none"), ("git -c core.editor=./x.py commit", "ask []")]);
    work.check(&[("git push --receive-pack=./x.py ../other", "ask []")]);
}

#[test]
fn a_person_who_gives_a_rule_means_the_program_as_it_is_then() {
    let mut work = Work::new(&["Bash(./run.sh *) outside"]);
    executable(&work.place.at("run.sh"));
    work.check(&[("./run.sh", "ask []")]);
    let rule: Rule = "Bash(./run.sh *) outside".parse().unwrap();
    work.policy.rules.clear();
    work.policy.add_at(settled(), Effect::Allow, rule, "approved in this session");
    work.check(&[("./run.sh", "none")]);
    executable(&work.place.at("run.sh"));
    work.check(&[("./run.sh", "ask []")]);
    // Without a time everything there counts as written, and a child has no later one than its parent.
    work.policy.rules.clear();
    add(&mut work.policy, "Bash(./run.sh *) outside");
    let mut child = work.policy.clone();
    child.began_at = Some(settled() + 60_000);
    work.policy = inherit(&work.policy, child);
    work.check(&[("./run.sh", "ask []")]);
    work.policy.began_at = None;
    executable(&work.place.home.join("bin/npm"));
    add(&mut work.policy, "Bash(npm *) outside");
    work.check(&[("./run.sh", "ask []"), ("npm install", "none")]);
}

#[test]
fn without_a_fence_such_a_rule_allows_in_its_place() {
    let mut work = Work::new(&["Bash(npm install *) outside"]);
    work.policy.fencing = Fencing::Missing;
    work.check(&[("npm install | tail -3", "none"), ("cd web && npm install", "ask []")]);
    let verdict = work.policy.decide("Bash", &[work.place.command("touch x")]);
    assert_eq!(verdict.allowing_flags().as_deref(), Some("--allow 'Bash(touch x)'"));
}

#[test]
fn only_a_rule_about_commands_can_be_outside() {
    for text in
        ["Bash(npm *) outside", "Bash(npm *)  outside", "Bash(npm *) outside in a b/c", "Bash(*) outside"]
    {
        assert!(text.parse::<Rule>().unwrap().is_outside(), "{text}");
        assert_eq!(text.parse::<Rule>().unwrap().text(), text);
    }
    for text in ["Bash(echo outside)", "Bash(echo (x) outside in y)"] {
        assert!(!text.parse::<Rule>().unwrap().is_outside(), "{text}");
    }
    for text in
        ["Edit(src/**) outside", "Bash outside", "* outside", "Bash(npm *) outside web", "Bash(npm *) inside"]
    {
        assert!(text.parse::<Rule>().is_err(), "{text}");
    }
    let error = "Read(x) outside".parse::<Rule>().unwrap_err().to_string();
    assert!(error.contains("only commands run outside of the fence at character 9"), "{error}");
}
