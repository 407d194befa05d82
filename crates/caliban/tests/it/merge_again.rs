//! Work that lands in several goes: what landed as one commit is not merged a second time.

use serde_json::{Value, json};
use testkit::{script, text};

use crate::{fleet::Fleet, merge::sh_in};

struct Again {
    fleet: Fleet,
    id: String,
}

impl Again {
    /// An agent whose first work has landed as one commit, on which the user went on at the same place.
    fn new() -> Self {
        let fleet = Fleet::new(script![text("done")]);
        let id = fleet.bg("the task", []);
        fleet.run(["agents", "wait", &id]).ok();
        let again = Self { fleet, id };
        again.agent("printf 'one\\ntwo\\nthree\\n' > list && git add list && git commit -qm first");
        again.merge(&["--squash", "-m", "first go"]);
        again.user("printf 'ONE\\ntwo\\nthree\\n' > list && git commit -qam mine");
        again
    }

    fn agent(&self, script: &str) -> String {
        sh_in(&self.fleet, &self.fleet.worktree(&self.id), script)
    }

    fn user(&self, script: &str) -> String {
        sh_in(&self.fleet, &self.fleet.place.repo, script)
    }

    fn merge(&self, more: &[&str]) -> Value {
        let args = ["agents", "merge", self.id.as_str(), "--json"];
        self.fleet.run(args.iter().chain(more).copied()).ok().json()
    }
}

#[test]
fn a_second_squash_lands_only_what_came_since() {
    let again = Again::new();
    again.agent("printf 'one\\ntwo\\nthree\\nfour\\n' > list && git commit -qam second");
    let landed = again.merge(&["--squash", "-m", "second go"]);
    assert_eq!(
        (&landed["how"], &landed["commits"], &landed["summary"]),
        (&json!("squash"), &json!(1), &json!("1 file changed, 1 insertion(+), 0 deletions(-)"))
    );
    assert_eq!(again.user("cat list; git status --porcelain"), "ONE\ntwo\nthree\nfour\n");
    assert_eq!(again.user("git log --format=%s"), "second go\nmine\nfirst go\nfirst commit\n");
    assert_eq!(again.merge(&["--squash"])["how"], json!("up_to_date"));
    // And once more, with work that nobody committed.
    again.agent("echo five >> list");
    again.merge(&["--squash", "-m", "third go", "--commit", "five"]);
    assert_eq!(again.user("cat list; git log -1 --format=%s"), "ONE\ntwo\nthree\nfour\nfive\nthird go\n");
}

#[test]
fn a_merge_after_a_squash_lands_only_what_came_since() {
    let again = Again::new();
    again.agent("printf 'one\\ntwo\\nthree\\nfour\\n' > list && git commit -qam second");
    assert_eq!(again.merge(&["-m", "second go"])["how"], json!("merge"));
    assert_eq!(again.user("cat list; git status --porcelain"), "ONE\ntwo\nthree\nfour\n");
    again.user(&format!("git merge-base --is-ancestor caliban/{} HEAD", again.id));
}

#[test]
fn a_second_squash_goes_into_a_branch_that_nobody_has_checked_out() {
    let again = Again::new();
    again.agent("printf 'one\\ntwo\\nthree\\nfour\\n' > list && git commit -qam second");
    again.user("git switch -qc other");
    again.merge(&["--squash", "-m", "second go", "--into", "main"]);
    assert_eq!(again.user("git show main:list"), "ONE\ntwo\nthree\nfour\n");
}

#[test]
fn an_agent_that_took_the_squash_over_goes_on_from_there() {
    let again = Again::new();
    again.agent("git merge -q -X theirs main -m over && printf 'ONE\\ntwo\\nthree\\nfour\\n' > list && git commit -qam second");
    again.user("printf 'Uno\\ntwo\\nthree\\n' > list && git commit -qam spanish");
    again.merge(&["--squash", "-m", "second go"]);
    assert_eq!(again.user("cat list"), "Uno\ntwo\nthree\nfour\n");
}

#[test]
fn work_that_does_conflict_is_still_refused() {
    let again = Again::new();
    again.agent("printf 'eins\\ntwo\\nthree\\n' > list && git commit -qam second");
    let before = again.user("git for-each-ref; git status --porcelain; cat list");
    let args = ["agents", "merge", again.id.as_str(), "--squash"];
    let refused = again.fleet.run(args).expect_code(1);
    assert!(refused.stderr.contains("conflicts in list"), "{}", refused.stderr);
    assert_eq!(again.user("git for-each-ref; git status --porcelain; cat list"), before);
}

/// Takes the commit with this message back, as git does it.
fn revert(again: &Again, message: &str) {
    again.user(&format!("git revert --no-edit $(git log --format=%H --grep='^{message}$') >/dev/null"));
}

/// An agent with two pieces of work which landed one by one.
fn in_two_goes() -> Again {
    let again = Again::new();
    again.agent("echo 2 > two && git add two && git commit -qm second");
    again.merge(&["--squash", "-m", "second go"]);
    again
}

#[test]
fn a_squash_that_was_taken_back_lands_again() {
    let again = in_two_goes();
    revert(&again, "second go");
    let stays = again.fleet.run(["rm", "--done"]).ok();
    let why = format!("{} stays: its commits are on no branch of yours", again.id);
    assert!(stays.stderr.contains(&why), "{}", stays.stderr);
    again.agent("echo 3 > three && git add three && git commit -qm third");
    again.user("git rm -q list && git commit -qm 'not wanted either'");
    let landed = again.fleet.run(["agents", "merge", again.id.as_str(), "--squash", "-m", "third go"]).ok();
    assert!(landed.stdout.contains(": 3 commits, 3 files changed"), "{}", landed.stdout);
    assert!(landed.stderr.contains("is not in main any more; it lands again"), "{}", landed.stderr);
    assert_eq!(again.user("cat list two three; git status --porcelain"), "one\ntwo\nthree\n2\n3\n");
    let removed = again.fleet.run(["rm", "--done"]).ok().stdout;
    assert!(removed.starts_with(&format!("{} removed\n", again.id)), "{removed}");
}

#[test]
fn a_squash_that_was_taken_back_lands_again_without_new_work_and_on_a_branch_in_the_store() {
    let again = in_two_goes();
    revert(&again, "second go");
    again.user("git switch -qc other");
    let landed = again.merge(&["--squash", "-m", "once more", "--into", "main"]);
    assert_eq!(
        (&landed["how"], &landed["summary"]),
        (&json!("squash"), &json!("1 file changed, 1 insertion(+), 0 deletions(-)"))
    );
    assert_eq!(again.user("git show main:two"), "2\n");
    // It is in a branch of the user's.
    let removed = again.fleet.run(["rm", "--done"]).ok().stdout;
    assert!(removed.starts_with(&format!("{} removed\n", again.id)), "{removed}");
}

#[test]
fn an_earlier_squash_that_was_taken_back_lands_again_too() {
    let again = in_two_goes();
    again.user("git rm -q list && git commit -qm 'first one taken back'");
    let stays = again.fleet.run(["rm", "--done"]).ok();
    assert!(stays.stderr.contains(&format!("{} stays: its commits", again.id)), "{}", stays.stderr);
    again.agent("echo 3 > three && git add three && git commit -qm third");
    again.merge(&["--squash", "-m", "third go"]);
    assert_eq!(again.user("cat list two three"), "one\ntwo\nthree\n2\n3\n");
}

#[test]
fn what_the_agent_itself_took_back_stays_landed() {
    let again = in_two_goes();
    again.agent("git rm -q two && git commit -qm 'no two'");
    again.merge(&["--squash", "-m", "third go"]);
    again.agent("printf 'one\\ntwo\\nthree\\nfour\\n' > list && git commit -qam fourth");
    assert_eq!(again.merge(&["--squash", "-m", "fourth go"])["commits"], json!(1));
    assert_eq!(again.user("cat list; ls"), "ONE\ntwo\nthree\nfour\nREADME.md\nlist\n");
    let removed = again.fleet.run(["rm", "--done"]).ok().stdout;
    assert!(removed.starts_with(&format!("{} removed\n", again.id)), "{removed}");
}

#[test]
fn an_agent_that_has_ended_is_not_waited_for_however_little_time_is_given() {
    let again = Again::new();
    let waited = again.fleet.run(["agents", "wait", again.id.as_str(), "--timeout", "0"]).ok();
    assert!(waited.stdout.starts_with(&format!("{}  done", again.id)), "{waited:?}");
}
