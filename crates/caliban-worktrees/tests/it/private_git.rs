//! The private git of an agent in its own worktree: its commands run in a fence, and between them the user's git says the same.

mod battery;
mod hostile;
mod killed;
mod together;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::lab::{Lab, slug, token};

/// One time for all commits: the same work has the same object ids.
const WHEN: &str = "1700000000 +0000";

/// A worktree `a1` beside one called `a10`.
pub(crate) struct Place {
    pub(crate) lab: Lab,
    pub(crate) tree: PathBuf,
}

/// The example `private-git` of this crate: cargo builds it beside the tests.
fn program() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let program = exe.parent().and_then(Path::parent).unwrap().join("examples/private-git");
    assert!(program.is_file(), "{} is not built", program.display());
    program
}

impl Place {
    pub(crate) async fn new() -> Self {
        Self::of(Lab::new()).await
    }

    pub(crate) async fn of(lab: Lab) -> Self {
        lab.git(&["branch", "feature"]);
        lab.git(&["config", "alias.l", "log --oneline"]);
        for name in ["a1", "a10"] {
            let request = caliban_worktrees::CreateRequest::new(slug(name));
            let made = lab.open().await.create(request, &|_| {}, &token()).await.unwrap();
            drop(made);
        }
        let tree = lab.wt("a1");
        Self { lab, tree }
    }

    fn command(&self, line: &str) -> Command {
        self.with_environment(Command::new(program()), line)
    }

    fn with_environment(&self, mut command: Command, line: &str) -> Command {
        command.arg(self.lab.repo()).arg("a1").arg(line).env_clear().envs(self.lab.environment());
        command.env("GIT_AUTHOR_DATE", WHEN).env("GIT_COMMITTER_DATE", WHEN).stdin(Stdio::null());
        command
    }

    /// Runs a line for the shell as the agent would.
    pub(crate) fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// The same; it has to succeed, and nothing is to be told.
    pub(crate) fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}: {}{told}", String::from_utf8_lossy(&output.stdout));
        assert!(!told.contains('['), "{line}: {told}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// git as the user runs it in the agent's worktree.
    pub(crate) fn user(&self, args: &[&str]) -> String {
        self.lab.git_at(&self.tree, args)
    }

    /// What must never change: configuration, hooks, and every ref but the agent's own.
    pub(crate) fn protected(&self) -> String {
        let refs = self.lab.git(&["for-each-ref", "--format=%(refname) %(objectname)"]);
        let is_own = |line: &&str| {
            let name = line.split(' ').next().unwrap();
            name == "refs/heads/caliban/a1"
                || name.starts_with("refs/heads/caliban/a1+")
                || ["refs", "stash", "conflict"]
                    .iter()
                    .any(|kind| name.starts_with(&format!("refs/caliban/{kind}/a1/")))
        };
        let mut picture: String = refs.lines().filter(|line| !is_own(line)).collect();
        let git = self.lab.repo().join(".git");
        picture.push_str(&std::fs::read_to_string(git.join("config")).unwrap());
        let mut hooks: Vec<_> =
            std::fs::read_dir(git.join("hooks")).unwrap().map(|hook| hook.unwrap().path()).collect();
        hooks.sort();
        for hook in hooks {
            picture.push_str(&format!("{} {}", hook.display(), std::fs::read_to_string(&hook).unwrap()));
        }
        picture
    }

    /// What git says about the worktree, inside and outside.
    pub(crate) fn both(&self) -> (String, String) {
        let asked = [
            "status --porcelain=v2 --branch",
            "rev-parse HEAD",
            "diff",
            "diff --cached",
            "log --format=%H%d",
        ];
        let line: Vec<String> = asked.iter().map(|args| format!("git {args}")).collect();
        let inside = self.ok(&line.join("; "));
        let outside: Vec<String> =
            asked.iter().map(|args| self.user(&args.split(' ').collect::<Vec<_>>())).collect();
        (plain(&inside), plain(&outside.join("\n")))
    }

    pub(crate) fn agrees(&self, after: &str) {
        let (inside, outside) = self.both();
        assert_eq!(inside, outside, "after {after}");
        self.lab.git(&["fsck", "--strict", "--no-dangling"]);
    }
}

/// Without what has another name outside, and without lines that only one of them has.
fn plain(text: &str) -> String {
    let decorated = |line: &str| match line.split_once(" (") {
        Some((oid, _)) if oid.len() >= 40 => oid.to_owned(),
        // Which branches other worktrees have is not known inside.
        _ => line.replace("caliban/a1+", "").replace("+ caliban/a10", "  caliban/a10"),
    };
    text.lines().filter(|line| !line.is_empty()).map(decorated).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn w01_a_commit_in_the_fence_is_on_the_branch_that_the_user_sees() {
    let place = Place::new().await;
    let before = place.protected();
    let said = place
        .ok("echo new > new; git add new; git commit -q -m one; git l -1 --format=%s; git rev-parse HEAD");
    let (subject, tip) = said.split_once('\n').unwrap();
    assert_eq!(subject, "one");
    assert_eq!(place.lab.git(&["rev-parse", "caliban/a1"]), tip);
    assert_eq!(place.user(&["status", "--porcelain"]), "");
    assert_eq!(place.user(&["log", "-1", "--format=%s %an"]), "one Agent");
    place.agrees("a commit");
    assert_eq!(place.protected(), before);
    // Staged and not committed, too.
    place.ok("echo staged > s; git add s; echo later >> new");
    assert_eq!(place.user(&["status", "--porcelain"]), " M new\nA  s");
    assert_eq!(place.user(&["show", ":s"]), "staged");
    // The lines of the log of HEAD are there, for whoever looks for what a reset left behind.
    assert!(place.user(&["reflog", "--format=%gs"]).contains("commit: one"));
}
