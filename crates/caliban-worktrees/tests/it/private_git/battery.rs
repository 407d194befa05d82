//! The same commands with the private git and with plain git: the answers and what is left are the same.

use std::process::Command;

use super::{Place, WHEN, plain};
use crate::lab::Lab;

const STEPS: &[&str] = &[
    "git status",
    "echo 1 > one; git add one; git commit -q -m one",
    "echo 2 >> one; git commit -q -am two; git commit -q --amend -m two-again",
    "echo 3 >> one; git add -p < /dev/null; git add -u; git diff --cached --stat",
    "git stash -q; git stash list; git status --short",
    "echo other > other; git add other; git stash -q; git stash list",
    "git stash pop -q; git stash pop -q; git status --short",
    "git commit -q -m three; git log --oneline",
    "git checkout -q -b topic; echo t > t; git add t; git commit -q -m topic; git branch",
    "git checkout -q caliban/a1; git merge -q --no-ff -m merged topic; git log --oneline --graph",
    "git branch -d topic; git branch",
    "git tag v1; git tag -a v2 -m second; git tag -l; git describe",
    "git tag -d v1; git tag -l",
    "git checkout -q -b side HEAD~1; echo side > one; git commit -q -am side; git checkout -q caliban/a1; echo mine > one; git commit -q -am mine",
    "git merge side; git status --short",
    "git merge --abort; git status",
    "git merge side; echo both > one; git add one; git commit -q -m resolved; git log --oneline -2",
    "git reset -q --hard HEAD~1; git reflog -2 --format=%gs",
    "git cherry-pick side; git status",
    "echo picked > one; git add one; git cherry-pick --continue --no-edit > /dev/null; git status --short",
    "git revert --no-edit HEAD > /dev/null; git log --oneline -1",
    "git checkout -q side; git rebase -q caliban/a1; git status",
    "echo rebased > one; git add one; GIT_EDITOR=true git rebase --continue; git status",
    "git checkout -q caliban/a1; git rebase -q side; git log --oneline -3",
    "git commit -q --allow-empty -m fixup; git reset -q --soft HEAD~1; git status --short",
    "git mv one uno; git rm -q t; git commit -q -m moved; git log --oneline -1 --stat",
    "git checkout -q feature; echo f > f; git add f; git commit -q -m onfeature; git branch",
    "git checkout -q caliban/a1; git merge -q --no-edit feature; git branch --contains feature",
    "git checkout main",
    "git checkout -q --detach; echo d > d; git add d; git commit -q -m detached; git status",
    "git checkout -q -b kept; git checkout -q caliban/a1; git merge -q kept; git log --oneline -1",
    "git bisect start HEAD HEAD~2; git bisect reset",
    "git notes add -m note HEAD; git notes show HEAD",
    "git add -N intended; touch intended; git add -N intended; git status --short",
    "git rm -q --cached intended; rm intended; git clean -fdq; git status --short",
    "ln -s uno link; chmod +x uno; git add -A; git commit -q -m modes; git ls-files -s",
    "git gc -q; git fsck --no-dangling; git log --oneline -1",
    "echo after > gc; git add gc; git commit -q -m aftergc; git log --oneline -1",
    "git pack-refs --all; git branch; git commit -q --allow-empty -m packed; git rev-parse HEAD",
    "git update-ref refs/heads/made HEAD~1; git branch; git update-ref -d refs/heads/made; git branch",
    "git commit -q --allow-empty -m x; git reset -q --hard HEAD@{1}; git log --oneline -1",
    "git config user.email e@example.com; git config user.email; git config alias.x 'rev-parse HEAD'; git x",
    "git switch -q -c renamed-from; git branch -m renamed; git commit -q --allow-empty -m renamed; git branch",
    "git switch -q caliban/a1; git branch -D renamed; git branch",
    "echo '*.tmp' > .gitignore; touch a.tmp; git status --short; git add -A; git commit -q -m ignore; git status --short",
    "mkdir -p deep/er; echo 1 > deep/er/file; git add deep; git commit -q -m deep; git archive HEAD deep | tar t",
    "git format-patch -q -1 -o $HOME/p; git reset -q --hard HEAD~1; git am -q $HOME/p/*; git log --oneline -1",
    "git blame -s uno; git shortlog -s HEAD; git show --stat HEAD",
];

/// The same step with plain git in a worktree `a1` of another repository.
fn beside(lab: &Lab, line: &str) -> (Option<i32>, String) {
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(lab.wt("a1")).env_clear().envs(lab.environment());
    command.env("GIT_AUTHOR_DATE", WHEN).env("GIT_COMMITTER_DATE", WHEN).env("GIT_OPTIONAL_LOCKS", "0");
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn battery(private: Lab, other: Lab) {
    for lab in [&private, &other] {
        // Their first commit is the same, too.
        let mut amend = Command::new("git");
        amend.args(["commit", "-q", "--amend", "--no-edit", "--date", WHEN]).current_dir(lab.repo());
        amend.env_clear().envs(lab.environment()).env("GIT_COMMITTER_DATE", WHEN);
        assert!(amend.status().unwrap().success());
    }
    let place = Place::of(private).await;
    let other = Place::of(other).await;
    // Each has a place of its own, which is no part of the answers.
    let answer = |lab: &Lab, text: &str| plain(&text.replace(lab.top().to_str().unwrap(), "TOP"));
    let before = place.protected();
    for step in STEPS {
        let (code, expected) = beside(&other.lab, step);
        let output = place.run(step);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(answer(&place.lab, &said), answer(&other.lab, &expected), "{step}\n{told}");
        assert_eq!(output.status.code(), code, "{step}\n{told}");
        place.agrees(step);
        let (outside, plainly) = (place.both().1, other.user(&["rev-parse", "HEAD"]));
        assert!(outside.contains(&plainly), "{step}: {plainly} is not HEAD in {outside}");
        assert_eq!(place.protected(), before, "{step}");
    }
}

#[tokio::test]
async fn w09_git_in_the_fence_does_what_it_does_outside() {
    battery(Lab::new(), Lab::new()).await;
}

#[tokio::test]
async fn w09_git_in_the_fence_does_what_it_does_outside_with_sha256() {
    let lab = || {
        let lab = Lab::empty();
        lab.git_at(lab.top(), &["init", "-q", "--object-format=sha256", "-b", "main", "repo"]);
        lab.fill();
        lab
    };
    battery(lab(), lab()).await;
}
