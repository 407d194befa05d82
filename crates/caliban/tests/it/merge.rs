//! `agents merge` where something could be lost or misstated: odd states of the user's tree and of the agent's.

use std::{
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use testkit::{Output, ProgramRun, Signal, script, text, wait_until};

use crate::fleet::Fleet;

/// A fleet with an agent that has ended, in a worktree which the test then shapes by hand.
pub(crate) struct Merge {
    fleet: Fleet,
    id: String,
}

impl Merge {
    fn new() -> Self {
        Self::with("", [])
    }

    /// The same in a repo that was prepared by a script, with more flags for the agent.
    pub(crate) fn with<'a>(prepared: &str, flags: impl IntoIterator<Item = &'a str>) -> Self {
        let fleet = Fleet::new(script![text("done")]);
        sh_in(&fleet, &fleet.place.repo, prepared);
        let id = fleet.bg("the task", flags);
        fleet.run(["agents", "wait", &id]).ok();
        Self { fleet, id }
    }

    /// Runs a script as the agent in its worktree.
    pub(crate) fn agent(&self, script: &str) -> String {
        sh_in(&self.fleet, &self.worktree(), script)
    }

    /// Runs a script as the user in the repo.
    pub(crate) fn user(&self, script: &str) -> String {
        sh_in(&self.fleet, &self.repo(), script)
    }

    fn git(&self, args: &[&str]) -> String {
        self.fleet.place.env.git(self.repo(), args)
    }

    pub(crate) fn worktree(&self) -> PathBuf {
        self.fleet.worktree(&self.id)
    }

    fn repo(&self) -> PathBuf {
        self.fleet.place.repo.clone()
    }

    fn branch(&self) -> String {
        format!("caliban/{}", self.id)
    }

    fn start(&self, more: &[&str]) -> ProgramRun {
        self.fleet.place.env.start("caliban", ["agents", "merge", &self.id]).args(more).dir(self.repo())
    }

    pub(crate) fn merge(&self, more: &[&str]) -> Output {
        self.start(more).output()
    }

    /// Everything that a refused merge must leave alone.
    fn state(&self) -> String {
        let look =
            "git for-each-ref; git rev-parse HEAD; git status --porcelain --ignored; git ls-files -v --stage
                    git diff --no-ext-diff; ls -d .git/MERGE* .git/SQUASH* .git/*.lock 2>/dev/null || true";
        let status = "git status --porcelain --ignored; git ls-files -v --stage";
        [self.user(look), self.agent(status)].join("\n")
    }

    /// A merge that is refused with these words and changes nothing.
    #[track_caller]
    pub(crate) fn refused(&self, more: &[&str], words: &str) -> Output {
        let before = self.state();
        let output = self.merge(more).expect_code(1);
        assert!(output.stderr.contains(words), "{words:?} is not in {}", output.stderr);
        assert_eq!(self.state(), before);
        output
    }

    fn hook(&self, name: &str, script: &str) {
        let path = self.repo().join(".git/hooks").join(name);
        self.fleet.place.env.write(&path, format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[track_caller]
pub(crate) fn sh_in(fleet: &Fleet, dir: &Path, script: &str) -> String {
    let run = ProgramRun::new(fleet.place.env.program("sh")).args(["-ec", script]).dir(dir);
    run.output().ok().stdout
}

const SPARSE: &str = "mkdir one two && echo 1 > one/f && echo 2 > two/g && git add . && git commit -qm dirs";

#[test]
fn work_of_a_sparse_worktree_is_committed_again_and_again_and_nothing_outside_of_it_goes() {
    let merge = Merge::with(SPARSE, ["--sparse", "one"]);
    for round in ["a", "b", "c"] {
        merge.agent(&format!("echo {round} >> one/f"));
        merge.merge(&["--commit", round]).ok();
        assert_eq!(merge.git(&["ls-files"]), "README.md\none/f\ntwo/g", "{round}");
        assert_eq!(merge.agent("git status --porcelain"), "", "{round}");
    }
    assert_eq!(merge.agent("git ls-files -t"), "H README.md\nH one/f\nS two/g\n");
    assert_eq!(merge.user("cat one/f"), "1\na\nb\nc\n");
}

#[test]
fn what_is_only_staged_outside_of_a_sparse_worktree_is_committed_as_it_is_staged() {
    let merge = Merge::with(SPARSE, ["--sparse", "one"]);
    merge.agent(
        "blob=$(echo staged | git hash-object -w --stdin)
         git update-index --add --cacheinfo 100644,$blob,two/new --cacheinfo 100755,$blob,two/g
         git update-index --skip-worktree two/new two/g
         echo more >> one/f",
    );
    merge.merge(&["--commit", "what is staged"]).ok();
    assert_eq!(
        merge.user("cat two/new two/g one/f; test -x two/g; git status --porcelain"),
        "staged\nstaged\n1\nmore\n"
    );
    assert_eq!(merge.agent("git status --porcelain; git ls-files -t two"), "S two/g\nS two/new\n");
}

#[test]
fn a_file_staged_outside_of_the_cone_by_commits_is_not_missed_afterwards() {
    let merge = Merge::with(SPARSE, ["--sparse", "one"]);
    // As a fenced agent does it: a commit of its own making, which the worktree's index does not know.
    merge.agent(
        "export GIT_INDEX_FILE=$PWD/../own-index; git read-tree HEAD
         git update-index --add --cacheinfo 100644,$(echo new | git hash-object -w --stdin),two/new
         git update-ref HEAD $(git commit-tree -p HEAD -m own $(git write-tree)); rm $GIT_INDEX_FILE
         echo more >> one/f",
    );
    merge.merge(&["--commit", "first"]).ok();
    merge.agent("echo more >> one/f");
    merge.merge(&["--commit", "second"]).ok();
    assert_eq!(merge.git(&["ls-files"]), "README.md\none/f\ntwo/g\ntwo/new");
    assert_eq!(merge.agent("git status --porcelain"), "");
}

#[test]
fn ignored_things_of_the_user_stand_in_the_way_of_other_kinds_of_files() {
    let merge = Merge::new();
    merge.agent(
        "ln -s /nowhere node_modules; mkdir cache.env; echo x > cache.env/x; echo f > build; mkdir -p deep/er
         echo d > deep/er/x; git add -A; git commit -qm things",
    );
    let ignore = "printf 'node_modules\\ncache.env\\nbuild\\ndeep\\n' >> .git/info/exclude";
    for (mine, named) in [
        ("mkdir -p node_modules/a && echo dear > node_modules/a/b", "node_modules/a/b"),
        ("echo dear > cache.env", "cache.env"),
        ("mkdir build && echo dear > build/out", "build/out"),
        ("ln -s /tmp deep", "deep"),
        ("mkdir deep && echo dear > deep/er", "deep/er"),
        ("mkdir -p build && git init -q build/nested", "build/nested"),
    ] {
        merge.user(&format!("{ignore}; {mine}"));
        let output = merge.refused(&[], "not committed here: ");
        assert!(output.stderr.contains(named), "{named} is not in {}", output.stderr);
        merge.user("rm -rf node_modules cache.env build deep");
    }
    merge.user("mkdir build");
    merge.merge(&[]).ok();
    assert_eq!(merge.user("cat build cache.env/x deep/er/x"), "f\nx\nd\n");
}

#[test]
fn a_squash_is_known_to_have_landed() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; git add .; git commit -qm one; echo 2 > two; git add .; git commit -qm two");
    let squashed: Value = merge.merge(&["--squash", "--json"]).ok().json();
    assert_eq!(
        [&squashed["how"], &squashed["commits"], &squashed["summary"]],
        [&json!("squash"), &json!(2), &json!("2 files changed, 2 insertions(+), 0 deletions(-)")]
    );
    let main = merge.git(&["rev-parse", "main"]);
    let tip = merge.git(&["rev-parse", &merge.branch()]);
    let record = merge.repo().join(".git/worktrees").join(&merge.id).join("caliban-landed.json");
    let record: Value = serde_json::from_str(&merge.fleet.place.env.read(record)).unwrap();
    assert_eq!(record, json!({"tip": tip, "commit": main}));
    let everything = format!("main has everything of {} already\n", merge.branch());
    for flags in [&[][..], &["--squash"]] {
        assert_eq!(merge.merge(flags).ok().stdout, everything);
        assert_eq!(merge.git(&["rev-parse", "main"]), main);
    }
    // Taken back by the user: it is not in any more.
    merge.user("git reset -q --hard HEAD^");
    let again: Value = merge.merge(&["--squash", "--json"]).ok().json();
    assert_eq!([&again["how"], &again["commits"]], [&json!("squash"), &json!(2)]);
    // More work after it is not.
    merge.agent("echo 3 > three; git add .; git commit -qm three");
    let more: Value = merge.merge(&["--json"]).ok().json();
    assert_eq!(
        [&more["how"], &more["summary"]],
        [&json!("merge"), &json!("1 file changed, 1 insertion(+), 0 deletions(-)")]
    );
}

#[test]
fn a_squash_of_what_is_there_already_makes_no_empty_commit() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; git add .; git commit -qm one");
    merge.user("echo 1 > one; git add .; git commit -qm 'the same by hand'");
    let main = merge.git(&["rev-parse", "main"]);
    let said = merge.merge(&["--squash"]).ok().stdout;
    assert_eq!(said, format!("main has everything of {} already\n", merge.branch()));
    assert_eq!(merge.git(&["rev-parse", "main"]), main);
    let merged: Value = merge.merge(&["--json", "--into", "main"]).ok().json();
    assert_eq!(merged["how"], "up_to_date");
}

#[test]
fn a_squash_works_whatever_the_users_merges_are_set_to() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; git add .; git commit -qm one");
    merge.user("git config merge.ff false; git config branch.main.mergeOptions '--no-ff --no-commit'");
    merge.merge(&["--squash"]).ok();
    assert_eq!(merge.git(&["log", "--format=%s %p"]).lines().count(), 2);
    merge.agent("echo 2 > two; git add .; git commit -qm two");
    merge.user("git config branch.main.mergeOptions --squash; git config merge.autoStash true; echo mine >> README.md");
    merge.merge(&[]).ok();
    assert_eq!(merge.git(&["rev-list", "--parents", "-1", "HEAD"]).split(' ').count(), 3);
    assert_eq!(
        merge.user("git status --porcelain; git stash list; tail -n1 README.md"),
        " M README.md\nmine\n"
    );
}

#[test]
fn commits_on_another_branch_or_on_none_are_landed_too() {
    let merge = Merge::new();
    merge.agent("git switch -qc feature; echo 1 > one; git add .; git commit -qm one");
    let said = merge.merge(&[]).ok().stdout;
    assert!(said.starts_with("merged feature into main: 1 commit, 1 file changed"), "{said}");
    merge.agent("git switch -q --detach; echo 2 > two; git add .; git commit -qm two");
    merge.merge(&[]).ok();
    assert_eq!(merge.git(&["ls-files"]), "README.md\none\ntwo");
    // What is checked out does not have all that the agent committed.
    merge.agent(&format!(
        "git switch -q {}; git reset -q --hard feature; echo 3 > three; git add .; git commit -qm three
         git switch -q --detach HEAD^",
        merge.branch()
    ));
    merge.refused(&[], "does not have all of its branch");
    merge.agent(&format!("git switch -q {}; git switch -qc other; echo u > u", merge.branch()));
    merge.refused(&["--commit", "u"], "does not have its branch");
}

#[test]
fn an_operation_that_is_not_finished_stops_a_merge_on_either_side() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; git add .; git commit -qm one");
    merge.user("echo x > x; git add .; git commit -qm x; git branch side HEAD^");
    merge.user("GIT_SEQUENCE_EDITOR='sed -i s/pick/edit/' git rebase -q -i HEAD^ 2>/dev/null");
    merge.refused(&[], "a rebase is not finished in");
    merge.user("git worktree add -q ../other side");
    merge.refused(&["--into", "main"], "a rebase of the branch main is not finished");
    merge.user("git rebase --abort; git bisect start >/dev/null; git bisect bad >/dev/null");
    merge.refused(&[], "a bisection is not finished in");
    merge.user("git bisect reset 2>/dev/null");
    merge.agent("git switch -qc mine HEAD^; echo 2 > one; git add .; git commit -qm two");
    merge.agent(&format!("git switch -q {}; git merge mine >/dev/null || true", merge.branch()));
    merge.refused(&["--commit", "all"], "a merge is not finished in the agent's worktree");
    merge.agent("git merge --abort");
    merge.merge(&[]).ok();
}

#[test]
fn changes_that_git_was_told_not_to_see_stop_a_merge() {
    let merge = Merge::with("echo 1 > local; echo 2 > other; git add .; git commit -qm files", []);
    merge.agent("echo agent >> local; git commit -qam local");
    for flag in ["assume-unchanged", "skip-worktree"] {
        merge.user(&format!("git update-index --{flag} local other; echo mine >> local; echo mine >> other"));
        merge.refused(&[], "not committed here: local");
        assert_eq!(merge.user("cat local other"), "1\nmine\n2\nmine\n");
        merge.user(&format!("git update-index --no-{flag} local other; git checkout -q local other"));
    }
    merge.user("echo mine > new; git add -N new");
    for flags in [&[][..], &["--squash"]] {
        merge.refused(flags, "git add -N announced");
    }
    // What differs elsewhere is no obstacle.
    merge.user("git reset -q; git update-index --assume-unchanged local other; echo mine >> other");
    merge.merge(&[]).ok();
    assert_eq!(merge.user("cat local other new"), "1\nagent\n2\nmine\nmine\n");
}

#[test]
fn odd_names_links_and_modes_land_as_they_are() {
    let merge = Merge::with(
        "echo 1 > run; echo dir > was-file; mkdir was-dir; echo x > was-dir/x; git add .; git commit -qm f",
        [],
    );
    merge.agent(
        "printf a > '-x'; printf b > \"$(printf 'new\\nline')\"; printf c > 'qu\"o\\te'; printf d > ' s '
         chmod +x run; ln -s -- -x link; rm was-file; mkdir was-file; echo in > was-file/in
         rm -r was-dir; echo now > was-dir; git mv README.md readme.md",
    );
    merge.merge(&["--commit", "odd"]).ok();
    assert_eq!(
        merge.user(
            "cat ./-x new* qu* ' s ' link was-file/in was-dir; test -x run; ls; git status --porcelain"
        ),
        "abcdain\nnow\n s \n-x\nlink\nnew\nline\nqu\"o\\te\nreadme.md\nrun\nwas-dir\nwas-file\n"
    );
    assert_eq!(merge.agent("git status --porcelain"), "");
    // Bytes that are no text, where only a commit of the agent's can name them.
    merge.agent("printf e > \"$(printf 'b\\377')\"");
    merge.refused(&["--commit", "bytes"], "its name is not text");
    merge.agent("git add .; git commit -qm bytes");
    let mine = merge.repo().join(std::ffi::OsStr::from_bytes(b"b\xff"));
    std::fs::write(&mine, "mine").unwrap();
    merge.user("printf 'b*\\n' >> .git/info/exclude");
    merge.refused(&[], "not committed here: b");
    std::fs::remove_file(&mine).unwrap();
    merge.merge(&[]).ok();
    assert_eq!(std::fs::read(mine).unwrap(), b"e");
}

#[test]
fn a_directory_that_became_a_link_is_committed_as_a_link() {
    let merge = Merge::with("mkdir d e; echo d > d/x; echo e > e/x; git add .; git commit -qm dirs", []);
    merge.agent("rm -r d; ln -s e d");
    merge.merge(&["--commit", "link"]).ok();
    assert_eq!(
        merge.git(&["ls-tree", "-r", "--format=%(objectmode) %(path)", "HEAD"]),
        "100644 README.md\n120000 d\n100644 e/x"
    );
}

#[test]
fn line_ends_and_filters_are_as_the_repo_wants_them() {
    let prepared = "printf '*.txt text\\n*.crlf -text\\n*.any text=auto\\n*.big filter=upper\\n*.none filter=nobody\\n' > .gitattributes
                    printf 'old\\r\\n' > old.any; git -c core.safecrlf=false add .
                    git update-index --cacheinfo 100644,$(git hash-object -w --no-filters old.any),old.any
                    git commit -qm attributes; git config filter.upper.clean 'tr a-z A-Z'";
    let merge = Merge::with(prepared, []);
    merge.agent(
        "printf 'a\\r\\nb\\r\\n' | tee a.txt a.crlf a.any >/dev/null; printf 'a\\0\\r\\n' > bin.any
         printf 'old\\r\\nnew\\r\\n' > old.any; echo raw > x.none",
    );
    merge.merge(&["--commit", "ends"]).ok();
    let blob = |name: &str| merge.git(&["cat-file", "blob", &format!("HEAD:{name}")]);
    assert_eq!(
        ["a.txt", "a.crlf", "a.any", "bin.any", "old.any", "x.none"].map(blob),
        ["a\nb", "a\r\nb\r", "a\nb", "a\0\r", "old\r\nnew\r", "raw"]
    );
    merge.agent("echo raw > x.big");
    merge.refused(&["--commit", "filtered"], "x.big cannot be committed: it goes through the filter 'upper'");
    merge.agent("touch -d yesterday x.big; git add .; git commit -qm filtered");
    merge.merge(&[]).ok();
    assert_eq!(blob("x.big"), "RAW");
}

#[test]
fn submodules_and_nested_repositories_do_not_stop_a_merge_and_are_named() {
    let merge = Merge::new();
    let sub = merge.fleet.place.env.repo();
    let add = format!(
        "git -c protocol.file.allow=always submodule --quiet add {} sub; git commit -qm sub; git init -q nested; echo n > nested/n",
        sub.display()
    );
    merge.agent(&add);
    let merged: Value = merge.merge(&["--json"]).ok().json();
    let left: Vec<&str> =
        merged["left"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    assert!(left.contains(&"sub") && left.contains(&"nested"), "{left:?}");
    assert_eq!(merge.git(&["ls-files", "--stage", "sub"]).split(' ').next(), Some("160000"));
    assert_eq!(merge.user("git status --porcelain"), "");
}

#[test]
fn a_key_that_is_missing_or_a_hook_that_refuses_leaves_everything_as_it_was() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; echo more >> README.md; git add .; git commit -qm one");
    merge.user(
        "echo mine > notes; git branch release; git config commit.gpgsign true; git config gpg.program false",
    );
    for flags in [&[][..], &["--squash"], &["--into", "release"]] {
        merge.refused(flags, "error: git ");
    }
    merge.user("git config --unset commit.gpgsign");
    merge.hook("commit-msg", "echo no >&2; exit 1");
    for flags in [&[][..], &["--squash"], &["--commit", "x"]] {
        merge.refused(flags, "no");
    }
    merge.user("rm .git/hooks/commit-msg; touch .git/index.lock");
    for flags in [&[][..], &["--squash"]] {
        merge.refused(flags, "index.lock");
    }
    merge.user("rm .git/index.lock");
    merge.merge(&[]).ok();
}

#[test]
fn what_is_interrupted_after_the_commit_has_landed() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; git add .; git commit -qm one");
    merge.hook("post-merge", "touch began; while [ ! -e go ]; do sleep 0.05; done");
    let mut merging = merge.start(&[]).spawn();
    wait_until("it has landed", || merge.repo().join("began").exists());
    merging.signal(Signal::INT);
    merge.user("touch go");
    let said = merging.wait().ok().stdout;
    assert!(said.starts_with(&format!("merged {} into main", merge.branch())), "{said}");
    assert_eq!(merge.git(&["ls-files"]), "README.md\none");
}

#[test]
fn what_a_hook_changed_before_it_refused_is_taken_back_and_not_lost() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; echo more >> README.md; git add .; git commit -qm one");
    merge.user("echo mine > notes");
    merge.hook("pre-commit", "for file in one README.md; do echo formatted >> $file; done; exit 1");
    let refused = merge.refused(&["--squash"], "git commit failed");
    assert!(refused.stderr.contains("hint: nothing was changed"), "{}", refused.stderr);
    let said = "one was changed by a hook; `git cat-file blob ";
    let kept = refused.stderr.split(said).nth(1).and_then(|rest| rest.split('`').next()).unwrap();
    assert_eq!(merge.git(&["cat-file", "blob", kept]), "1\nformatted");
    merge.user("cp .git/hooks/pre-commit .git/hooks/pre-merge-commit");
    merge.refused(&[], "git merge failed");
}

#[test]
fn what_somebody_else_does_meanwhile_is_left_alone() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; echo more >> README.md; git add .; git commit -qm one");
    for (hook, flags) in [("pre-merge-commit", &[][..]), ("pre-commit", &["--squash"])] {
        // As a person in another terminal would.
        merge.hook(hook, "echo mine > mine; git add mine; exit 1");
        let refused = merge.merge(flags).expect_code(1);
        assert!(refused.stderr.contains("hint: nothing was changed"), "{}", refused.stderr);
        let left =
            "git status --porcelain; cat mine; git rm -qf mine; ls -d .git/MERGE* .git/SQUASH* 2>&1 || true";
        let left = merge.user(left);
        assert!(left.starts_with("A  mine\nmine\n") && !left.contains("\n.git"), "{left}");
        merge.user(&format!("rm .git/hooks/{hook}"));
    }
    merge
        .hook("pre-commit", "git update-ref HEAD $(git commit-tree -p HEAD -m theirs 'HEAD^{tree}'); exit 1");
    let refused = merge.merge(&["--squash"]).expect_code(1);
    assert!(refused.stderr.contains("HEAD was moved meanwhile"), "{}", refused.stderr);
    assert_eq!(merge.git(&["log", "-1", "--format=%s"]), "theirs");
}

#[test]
fn a_submodule_that_is_only_staged_is_uncommitted_work() {
    let merge = Merge::new();
    let sub = merge.fleet.place.env.repo();
    let add = "git -c protocol.file.allow=always submodule --quiet add";
    merge.agent(&format!("echo 1 > one; git add one; git commit -qm one; {add} {} sub", sub.display()));
    merge.refused(&[], "not committed: .gitmodules, sub");
    merge.merge(&["--commit", "sub"]).ok();
    assert_eq!(merge.git(&["ls-files", "--stage", "sub"]).split(' ').next(), Some("160000"));
    merge.agent("git rm -q sub");
    merge.merge(&["--commit", "no sub"]).ok();
    assert_eq!(merge.git(&["ls-files"]), ".gitmodules\nREADME.md\none");
    assert_eq!(merge.agent("git diff --cached --name-only"), "");
}

#[test]
fn merges_go_into_the_tree_that_the_user_is_in() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; git add .; git commit -qm one");
    merge.user(
        "git worktree add -q ../linked -b linked; mkdir ../linked/dir; git worktree add -q --detach ../loose",
    );
    let root = merge.fleet.place.env.root().to_owned();
    let run = |dir: &str| {
        let run = merge.fleet.place.env.start("caliban", ["agents", "merge", &merge.id]);
        run.dir(root.join(dir)).output().ok()
    };
    assert!(run("linked/dir").stdout.contains("into linked: "));
    let loose = run("loose");
    assert!(loose.stdout.contains("into the detached HEAD: "), "{}", loose.stdout);
    assert!(loose.stderr.contains("HEAD is on no branch here"), "{}", loose.stderr);
    for dir in ["linked", "loose"] {
        assert_eq!(sh_in(&merge.fleet, &root.join(dir), "cat one; git status --porcelain"), "1\n", "{dir}");
    }
    assert_eq!(merge.git(&["ls-files"]), "README.md");
    let taken = merge.merge(&["--into", "linked"]).expect_code(2);
    assert!(taken.stderr.contains("is checked out in"), "{}", taken.stderr);
}

#[test]
fn commits_land_when_the_worktree_is_gone() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; git add .; git commit -qm one");
    std::fs::remove_dir_all(merge.worktree()).unwrap();
    merge.merge(&[]).ok();
    assert_eq!(merge.git(&["ls-files"]), "README.md\none");
}

#[test]
fn a_branch_without_a_commit_is_no_place_to_merge_into() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; git add .; git commit -qm one");
    merge.user("git switch -q --orphan new");
    let refused = merge.merge(&[]).expect_code(1);
    assert!(refused.stderr.contains("new has no commit yet to merge into"), "{}", refused.stderr);
    let empty = merge.merge(&["-m", " "]).expect_code(2);
    assert!(empty.stderr.contains("is empty"), "{}", empty.stderr);
}

#[test]
fn a_merge_driver_runs_in_the_users_tree_and_nowhere_else() {
    let prepared = "printf 'log merge=union\\ndata merge=mine\\n' > .gitattributes; echo 1 > log; echo 1 > data; git add .
                    git commit -qm files; git config merge.mine.driver 'touch ran; cat %B > %A'; git branch release";
    let merge = Merge::with(prepared, []);
    merge.agent("echo agent >> log; echo agent > data; git commit -qam agent");
    merge.user(
        "git switch -q release; echo user >> log; echo user > data; git commit -qam user; git switch -q main
                git merge -q --ff-only release",
    );
    merge.user("git switch -q -c elsewhere");
    let refused = merge.merge(&["--into", "release"]).expect_code(1);
    assert!(refused.stderr.contains("conflicts in data\n"), "{}", refused.stderr);
    assert!(!merge.repo().join("ran").exists() && !Path::new("/ran").exists());
    merge.merge(&[]).ok();
    assert_eq!(merge.user("cat data; sort log"), "agent\n1\nagent\nuser\n");
}

#[test]
fn two_merges_at_once_wait_for_each_other() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; git add .; git commit -qm one");
    merge.hook("pre-merge-commit", "touch began; while [ ! -e go ]; do sleep 0.05; done");
    let first = merge.start(&[]).spawn();
    wait_until("the first one has begun", || merge.repo().join("began").exists());
    let mut second = merge.start(&["--json"]).spawn();
    second.wait_for_stderr("another merge is under way");
    merge.user("touch go");
    first.wait().ok();
    let second: Value = second.wait().ok().json();
    assert_eq!(second["how"], "up_to_date");
}

#[test]
fn an_interrupted_merge_is_taken_back() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; echo more >> README.md; git add .; git commit -qm one");
    merge.user("printf 'began\\ngo\\n' >> .git/info/exclude");
    let before = merge.state();
    for (hook, flags) in [("pre-merge-commit", &[][..]), ("pre-commit", &["--squash"])] {
        merge.hook(hook, "touch began; while [ ! -e go ]; do sleep 0.05; done");
        let mut merging = merge.start(flags).spawn();
        wait_until("it has begun", || merge.repo().join("began").exists());
        merging.signal(Signal::INT);
        merge.user("touch go");
        let output = merging.wait().expect_code(130);
        assert!(output.stderr.contains("hint: nothing was changed"), "{}", output.stderr);
        merge.user(&format!("rm began go .git/hooks/{hook}"));
        assert_eq!(merge.state(), before, "{hook}");
    }
}

/// The hook has the environment of the person; whoever looks at the merge itself sees nothing.
#[test]
fn a12_a_merge_that_waits_for_a_hook_shows_nobody_a_key() {
    let key = "sk-live-0123456789abcdef0123456789";
    let merge = Merge::new();
    merge.agent("echo 1 > one; git add .; git commit -qm one");
    merge.user("printf 'began\\ngo\\n' >> .git/info/exclude");
    merge.hook("pre-commit", "echo \"$FOO_TOKEN\" > began; while [ ! -e go ]; do sleep 0.05; done; exit 1");
    let merging = merge.start(&["--squash"]).env("FOO_TOKEN", key).spawn();
    wait_until("it has begun", || {
        std::fs::read_to_string(merge.repo().join("began")).is_ok_and(|had| had == format!("{key}\n"))
    });
    let environment = std::fs::read(format!("/proc/{}/environ", merging.pid())).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains(key));
    assert!(crate::secrets::is_hidden(merging.pid()));
    merge.user("touch go");
    merging.wait().expect_code(1);
}

#[test]
fn after_a_kill_it_is_said_how_to_go_on_and_that_is_true() {
    let merge = Merge::new();
    merge.agent("echo 1 > one; git add .; git commit -qm one");
    merge.user("printf 'began\\ngo\\n' >> .git/info/exclude");
    let before = merge.state();
    merge.hook("pre-commit", "touch began; while [ ! -e go ]; do sleep 0.05; done; exit 1");
    let merging = merge.start(&["--squash"]).spawn();
    wait_until("it has begun", || merge.repo().join("began").exists());
    merging.kill();
    merge.user("touch go");
    wait_until("the hook is gone", || {
        !merge.fleet.place.env.processes().iter().any(|(_, line)| line.contains("pre-commit"))
    });
    let refused = merge.merge(&["--squash"]).expect_code(1);
    assert!(refused.stderr.contains("git reset --merge takes it back"), "{}", refused.stderr);
    merge.user("git reset --merge; rm began go .git/hooks/pre-commit");
    assert_eq!(merge.state(), before);
    merge.merge(&["--squash"]).ok();
}

#[test]
fn a_merge_with_a_commit_that_was_killed_when_it_had_landed_is_finished_by_the_next() {
    let merge = Merge::new();
    merge.agent("echo 1 > one");
    merge.hook("post-merge", "touch began; while [ ! -e go ]; do sleep 0.05; done");
    merge.user("printf 'began\\ngo\\n' >> .git/info/exclude");
    let merging = merge.start(&["--commit", "one"]).spawn();
    wait_until("it has landed", || merge.repo().join("began").exists());
    merging.kill();
    merge.user("touch go");
    let main = merge.git(&["rev-parse", "main"]);
    let again: Value = merge.merge(&["--commit", "one", "--json"]).ok().json();
    assert_eq!([&again["how"], &again["commit"]], [&json!("up_to_date"), &json!(main)]);
    assert_eq!(merge.git(&["rev-parse", &merge.branch()]), merge.git(&["rev-parse", "main^2"]));
    assert_eq!(merge.agent("git status --porcelain"), "");
    assert_eq!(merge.git(&["for-each-ref", "refs/caliban"]), "");
}
