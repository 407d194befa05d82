use super::*;
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::Path,
    process::Command,
};

fn init(place: &Path) {
    fs::create_dir_all(place).unwrap();
    let done = Command::new("git").args(["init", "-q", "."]).current_dir(place).status().unwrap();
    assert!(done.success());
}

#[test]
fn a18_settings_that_run_nothing_are_known() {
    for plain in
        ["", "[core]\n\tbare = false\n# x\n", "[remote \"a]b\"]\n", "[user]\nname = x\n[Core] FileMode=true"]
    {
        assert_eq!(is_plain(plain), !plain.contains("a]b"), "{plain}");
    }
    for armed in [
        "[core] fsmonitor = x",
        "[core]\nhooksPath = x",
        "[include]\npath = x",
        "[remote \"o\"]\nurl = ext::sh -c x",
        "[remote \"o\"]\nurl = ext:\":\"sh -c x",
        "[remote \"o\"]\nurl = ext:\\:sh -c x",
        "[user]\nname = a\\\n[core]\n",
        "[core]\n\tworktree = ../x",
        "[pager]\nlog = x",
        "core.fsmonitor",
    ] {
        assert!(!is_plain(armed), "{armed}");
    }
}

fn names(paths: &[JudgedPlace], top: &Path) -> Vec<String> {
    paths.iter().map(|place| place.path.strip_prefix(top).unwrap().display().to_string()).collect()
}

#[test]
fn a18_what_git_runs_in_nested_repositories_is_held_or_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    let top = fs::canonicalize(dir.path()).unwrap();
    init(&top);
    init(&top.join("third/party"));
    let root = Arc::new(Root::pin(&top).unwrap());
    let mut nested = NestedRepos::new(root).unwrap();
    let duties = nested.duties(None).unwrap();
    assert_eq!(names(&duties.fixed, &top), ["third/party/.git/config", "third/party/.git/hooks"]);
    let absent: Vec<_> = duties.absent.iter().map(|(name, _)| name.under(Path::new(""))).collect();
    assert!(absent.contains(&"third/party/.git/commondir".into()), "{absent:?}");
    assert_eq!(nested.disarm_new().unwrap(), Vec::<String>::new());
    // A new one that runs nothing stays as it is.
    init(&top.join("a/b/new"));
    let plain = fs::read_to_string(top.join("a/b/new/.git/config")).unwrap();
    assert_eq!(nested.disarm_new().unwrap(), Vec::<String>::new());
    assert_eq!(fs::read_to_string(top.join("a/b/new/.git/config")).unwrap(), plain);
    assert_eq!(nested.duties(None).unwrap().fixed.len(), 4);
    // One that runs something is disarmed.
    init(&top.join("a/armed"));
    fs::write(top.join("a/armed/.git/config"), "[core]\n\tfsmonitor = evil\n").unwrap();
    fs::write(top.join("a/armed/.git/hooks/post-checkout"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(top.join("a/armed/.git/hooks/post-checkout"), fs::Permissions::from_mode(0o755))
        .unwrap();
    fs::create_dir(top.join("links")).unwrap();
    symlink("../a/armed/.git", top.join("links/.git")).unwrap();
    fs::create_dir(top.join("file")).unwrap();
    fs::write(top.join("file/.git"), "gitdir: ../a/armed/.git\n").unwrap();
    let bare = top.join("bare.git");
    for made in ["objects", "refs", "hooks"] {
        fs::create_dir_all(bare.join(made)).unwrap();
    }
    fs::write(bare.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(bare.join("config"), "[filter \"x\"]\n\tsmudge = evil\n").unwrap();
    let lines = nested.disarm_new().unwrap();
    assert_eq!(lines.len(), 5, "{lines:#?}");
    assert_eq!(fs::read_to_string(top.join("a/armed/.git/config")).unwrap(), PLAIN);
    assert!(top.join("a/armed/.git/hooks.not-used/post-checkout").exists());
    assert!(!top.join("links/.git").is_symlink() && !top.join("file/.git").exists());
    assert_eq!(fs::read_to_string(bare.join("config")).unwrap(), PLAIN);
    assert_eq!(nested.disarm_new().unwrap(), Vec::<String>::new());
}

/// A directory with `HEAD`, `objects` and `refs` is a git directory, and may have everything else in it, too.
#[test]
fn a18_a_repository_in_what_looks_like_a_git_directory_is_disarmed() {
    let dir = tempfile::tempdir().unwrap();
    let top = fs::canonicalize(dir.path()).unwrap();
    fs::create_dir_all(top.join("src/deep")).unwrap();
    let mut nested = NestedRepos::new(Arc::new(Root::pin(&top).unwrap())).unwrap();
    for made in ["objects/low", "refs"] {
        fs::create_dir_all(top.join("src").join(made)).unwrap();
    }
    fs::write(top.join("src/HEAD"), "ref: refs/heads/main\n").unwrap();
    for name in ["src/deep", "src/objects/low"] {
        init(&top.join(name));
        arm(&top.join(name));
    }
    let lines = nested.disarm_new().unwrap();
    for name in ["src/deep", "src/objects/low"] {
        let config = fs::read_to_string(top.join(name).join(".git/config")).unwrap();
        assert_eq!(config, PLAIN, "{name}: {lines:#?}");
    }
}

/// The other side of a `.git` file points back, and lies where nobody looks for what makes git run programs.
#[test]
fn a18_a_git_file_that_names_a_place_of_no_look_is_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    let base = fs::canonicalize(dir.path()).unwrap();
    let (top, tmp) = (base.join("top"), base.join("tmp"));
    init(&top.join("known"));
    let mut nested = NestedRepos::new(Arc::new(Root::pin(&top).unwrap())).unwrap();
    let linked = |store: &Path, place: &Path| {
        let record = store.join("worktrees/w");
        fs::create_dir_all(&record).unwrap();
        fs::create_dir_all(place).unwrap();
        for name in ["HEAD", "worktrees/w/HEAD"] {
            fs::write(store.join(name), "ref: refs/heads/main\n").unwrap();
        }
        for name in ["objects", "refs"] {
            fs::create_dir_all(store.join(name)).unwrap();
        }
        fs::write(record.join("commondir"), "../..\n").unwrap();
        fs::write(record.join("gitdir"), format!("{}\n", place.join(".git").display())).unwrap();
        fs::write(place.join(".git"), format!("gitdir: {}\n", record.display())).unwrap();
        let kind = git_file(&Root::pin(place).unwrap(), &|_, _| false);
        assert!(matches!(kind, GitFile::Found(_)), "{kind:?}");
    };
    linked(&tmp.join("store"), &top.join("one"));
    linked(&top.join("known/.git/hidden"), &top.join("two"));
    // What git made in a repository of the tree stays: its settings are held or disarmed.
    linked(&top.join("known/.git"), &top.join("three"));
    linked(&top.join("bare.git"), &top.join("four"));
    let lines = nested.disarm_new().unwrap();
    let has = ["one", "two", "three", "four"].map(|name| top.join(name).join(".git").exists());
    assert_eq!(has, [false, false, true, true], "{lines:#?}");
    assert!(top.join("bare.git/worktrees/w/commondir").exists(), "{lines:#?}");
}

fn close(place: &Path, mode: u32) {
    fs::set_permissions(place, fs::Permissions::from_mode(mode)).unwrap();
}

fn arm(place: &Path) {
    fs::write(place.join(".git/config"), "[core]\n\tfsmonitor = evil\n").unwrap();
}

#[test]
fn a18_a_repository_that_cannot_be_disarmed_keeps_no_other_one_armed() {
    if testkit::was_run_by_another_user(
        "nested::tests::a18_a_repository_that_cannot_be_disarmed_keeps_no_other_one_armed",
    ) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let top = fs::canonicalize(dir.path()).unwrap();
    let mut nested = NestedRepos::new(Arc::new(Root::pin(&top).unwrap())).unwrap();
    for name in ["a", "b", "c", "d", "z"] {
        init(&top.join(name));
        arm(&top.join(name));
    }
    fs::create_dir(top.join("e")).unwrap();
    fs::write(top.join("e/.git"), "gitdir: ../z/.git\n").unwrap();
    close(&top.join("a/.git/config"), 0);
    close(&top.join("b/.git"), 0o555);
    close(&top.join("c/.git"), 0o311);
    fs::write(top.join("d/.git/hooks/post-checkout"), "").unwrap();
    close(&top.join("d/.git/hooks"), 0);
    close(&top.join("d/.git"), 0);
    close(&top.join("e"), 0o555);
    let lines = nested.disarm_new().unwrap();
    assert_eq!(lines.len(), 8, "{lines:#?}");
    for name in ["a", "b", "c", "d", "z"] {
        assert_eq!(
            fs::read_to_string(top.join(name).join(".git/config")).unwrap(),
            PLAIN,
            "{name}: {lines:#?}"
        );
    }
    assert!(!top.join("d/.git/hooks").exists() && !top.join("e/.git").exists());
    assert_eq!(nested.disarm_new().unwrap(), Vec::<String>::new());
    // One that is known and cannot be looked into is held as a whole.
    close(&top.join("a/.git"), 0);
    assert!(names(&nested.duties(None).unwrap().fixed, &top).contains(&"a/.git".to_owned()));
}

#[test]
fn a18_a_closed_directory_hides_no_repository() {
    if testkit::was_run_by_another_user("nested::tests::a18_a_closed_directory_hides_no_repository") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let top = fs::canonicalize(dir.path()).unwrap();
    for made in ["private/x", "shut", "old"] {
        fs::create_dir_all(top.join(made)).unwrap();
    }
    close(&top.join("private"), 0);
    close(&top.join("shut"), 0o311);
    let mut nested = NestedRepos::new(Arc::new(Root::pin(&top).unwrap())).unwrap();
    let mode = |name: &str| fs::metadata(top.join(name)).unwrap().mode() & 0o777;
    // What the user has closed stays closed, as long as nobody changes it.
    let_settle(&top);
    let mut nested_again = NestedRepos::new(Arc::new(Root::pin(&top).unwrap())).unwrap();
    assert_eq!(nested_again.disarm_new().unwrap(), Vec::<String>::new());
    assert_eq!((mode("private"), mode("shut")), (0, 0o311));
    for (name, closed) in [("new", 0o311), ("none", 0), ("old", 0o300), ("no-search", 0o644), ("shut", 0o311)]
    {
        init(&top.join(name).join("repo"));
        arm(&top.join(name).join("repo"));
        close(&top.join(name), closed);
    }
    init(&top.join("deep/a/b"));
    arm(&top.join("deep/a/b"));
    close(&top.join("deep/a"), 0);
    close(&top.join("deep"), 0o311);
    let lines = nested.disarm_new().unwrap();
    for name in ["new/repo", "none/repo", "old/repo", "no-search/repo", "shut/repo", "deep/a/b"] {
        assert_eq!(
            fs::read_to_string(top.join(name).join(".git/config")).unwrap(),
            PLAIN,
            "{name}: {lines:#?}"
        );
    }
    assert!(lines[0].contains("and 6 more") || lines[0].contains("and 7 more"), "{lines:#?}");
    close(&top.join("private"), 0o700);
}

#[test]
fn a18_what_a_killed_command_made_is_not_the_users() {
    let dir = tempfile::tempdir().unwrap();
    let top = fs::canonicalize(dir.path()).unwrap();
    let root = Arc::new(Root::pin(&top).unwrap());
    init(&top.join("old"));
    arm(&top.join("old"));
    let known = NestedRepos::new(root.clone()).unwrap().known().clone();
    init(&top.join("new"));
    arm(&top.join("new"));
    let (nested, lines) = NestedRepos::knowing(root, known).unwrap();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(fs::read_to_string(top.join("new/.git/config")).unwrap(), PLAIN);
    assert_ne!(fs::read_to_string(top.join("old/.git/config")).unwrap(), PLAIN);
    assert_eq!(nested.known().gits.len(), 1);
}

/// Git finds `HEAD` by `head` there. Needs a file system of that kind, which root can mount where the kernel has it.
#[test]
fn a18_a_bare_repository_is_found_where_case_does_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let top = fs::canonicalize(dir.path()).unwrap();
    let mount = format!(
        "mount -t tmpfs -o casefold tmpfs '{0}' && mkdir '{0}/c' && chattr +F '{0}/c'",
        top.display()
    );
    let mounted = Command::new("sh").args(["-c", &mount]).output().unwrap();
    if mounted.status.success() {
        let bare = top.join("c/bare");
        for made in ["Objects", "REFS"] {
            fs::create_dir_all(bare.join(made)).unwrap();
        }
        fs::write(bare.join("head"), "ref: refs/heads/main\n").unwrap();
        let nested = NestedRepos::new(Arc::new(Root::pin(&top).unwrap())).unwrap();
        assert!(nested.known().gits.contains(&Below::new("c/bare").unwrap()), "{:?}", nested.known());
    }
    let _may_not_be_mounted = Command::new("umount").arg(&top).output();
    // Elsewhere another spelling is another file.
    let other = tempfile::tempdir().unwrap();
    for made in ["bare/Objects", "bare/REFS"] {
        fs::create_dir_all(other.path().join(made)).unwrap();
    }
    fs::write(other.path().join("bare/head"), "").unwrap();
    assert!(NestedRepos::new(Arc::new(Root::pin(other.path()).unwrap())).unwrap().known().gits.is_empty());
}

/// Waits until changes so far are older than the clock's tick: only then a look may pass over a directory.
fn let_settle(top: &Path) {
    let changed = || fs::metadata(top).unwrap().modified().unwrap();
    fs::write(top.join("now"), "").unwrap();
    let last = changed();
    while SystemTime::now() < last + 2 * TICK {
        std::thread::yield_now();
    }
}

#[test]
fn a18_a_look_at_what_changed_finds_what_a_whole_look_finds() {
    let dir = tempfile::tempdir().unwrap();
    let top = fs::canonicalize(dir.path()).unwrap();
    let root = Arc::new(Root::pin(&top).unwrap());
    let mut nested = NestedRepos::new(root.clone()).unwrap();
    let mut random = fastrand::Rng::with_seed(25);
    let place = |random: &mut fastrand::Rng| {
        let depth = random.usize(1..4);
        let names: Vec<_> = (0..depth).map(|_| ["a", "b", "c"][random.usize(..3)]).collect();
        top.join(names.join("/"))
    };
    let (mut most, mut links, mut changes) = (0, 0, 0);
    for round in 0..60 {
        for _ in 0..random.usize(..4) {
            let (one, other) = (place(&mut random), place(&mut random));
            let done = match random.u8(..8) {
                0 => fs::create_dir_all(&one),
                1 => fs::create_dir_all(&one).and_then(|()| fs::write(one.join(".git"), "gitdir: x")),
                2 => fs::create_dir_all(one.join("refs")).and_then(|()| {
                    fs::create_dir_all(one.join("objects"))?;
                    fs::write(one.join("HEAD"), "")
                }),
                3 => fs::rename(&one, &other),
                6 => fs::create_dir_all(one.join("logs/refs")).and_then(|()| {
                    symlink("x", one.join("logs").join(["HEAD", "refs/x"][random.usize(..2)]))
                }),
                7 => fs::create_dir_all(one.join(".git/logs/refs")).and_then(|()| {
                    symlink("x", one.join(".git").join(["FETCH_HEAD", "logs/refs/x"][random.usize(..2)]))
                }),
                4 => fs::remove_file(one.join(["HEAD", ".git"][random.usize(..2)])),
                _ => fs::remove_dir_all(&one),
            };
            changes += usize::from(done.is_ok());
        }
        if random.bool() {
            let_settle(&top);
        }
        let whole = NestedRepos::new(root.clone()).unwrap().known;
        (most, links) = (most.max(whole.gits.len()), links.max(whole.links.len()));
        assert_eq!(nested.look(ClosedDirectories::OpenUp).unwrap(), whole.gits, "round {round}");
        assert_eq!(nested.found_links(), whole.links, "round {round}");
    }
    assert!(most > 3 && links > 2 && changes > 30, "{most} repositories, {links} links, {changes} changes");
}

/// A worktree's record in a repository of the tree leads a git elsewhere, too.
#[test]
fn a18_records_of_worktrees_of_nested_repositories_keep_their_settings() {
    let dir = tempfile::tempdir().unwrap();
    let base = fs::canonicalize(dir.path()).unwrap();
    let top = base.join("top");
    let git = |place: &Path, args: &[&str]| {
        let set = ["-c", "user.name=x", "-c", "user.email=x@x"];
        let done = Command::new("git").args(set).args(args).current_dir(place).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    init(&top.join("known"));
    git(&top.join("known"), &["commit", "-q", "--allow-empty", "-m", "one"]);
    git(&top.join("known"), &["worktree", "add", "-q", "../../users"]);
    let mut nested = NestedRepos::new(Arc::new(Root::pin(&top).unwrap())).unwrap();
    let duties = nested.duties(None).unwrap();
    let fixed = names(&duties.fixed, &top);
    for part in ["commondir", "gitdir"] {
        assert!(fixed.contains(&format!("known/.git/worktrees/users/{part}")), "{fixed:?}");
    }
    let absent: Vec<_> = duties.absent.iter().map(|(name, _)| name.to_string()).collect();
    assert!(absent.contains(&"known/.git/worktrees/users/config.worktree".to_owned()), "{absent:?}");
    // One that a command makes stays, but for settings.
    git(&top.join("known"), &["worktree", "add", "-q", "../made"]);
    assert_eq!(nested.disarm_new().unwrap(), Vec::<String>::new());
    let record = top.join("known/.git/worktrees/made");
    assert!(record.join("commondir").exists() && record.join("gitdir").exists());
    fs::write(record.join("config.worktree"), "[core]\n\tfsmonitor = evil\n").unwrap();
    assert_eq!(nested.disarm_new().unwrap().len(), 1);
    assert!(!record.join("config.worktree").exists());
    fs::write(record.join("commondir"), format!("{}\n", base.join("evil").display())).unwrap();
    assert_eq!(
        nested.disarm_new().unwrap().len(),
        3,
        "two files of the record, and the one that leads to it"
    );
    // One that the user removes may be made again.
    git(&top.join("known"), &["worktree", "remove", "--force", "../../users"]);
    nested.disarm_new().unwrap();
    let duties = nested.duties(None).unwrap();
    assert!(!duties.absent.iter().any(|(name, _)| name.to_string().contains("users")), "{duties:?}");
}

/// Git follows a link in its directory when it writes, at every depth where it has files by name.
#[test]
fn a18_new_links_where_git_writes_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let base = fs::canonicalize(dir.path()).unwrap();
    let top = base.join("top");
    let bare = |place: &Path| {
        for made in ["objects", "refs"] {
            fs::create_dir_all(place.join(made)).unwrap();
        }
        fs::write(place.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    };
    init(&top.join("old"));
    symlink("of/the/user", top.join("old/.git/refs/users")).unwrap();
    fs::create_dir_all(top.join("later/logs")).unwrap();
    symlink("../../../home", top.join("later/logs/HEAD")).unwrap();
    let mut nested = NestedRepos::new(Arc::new(Root::pin(&top).unwrap())).unwrap();
    let_settle(&top);
    assert_eq!(nested.disarm_new().unwrap(), Vec::<String>::new());
    let names = [
        "old/.git/FETCH_HEAD",
        "old/.git/logs/HEAD",
        "old/.git/logs/refs/heads/main",
        "old/.git/refs/remotes/origin/x",
        "old/.git/info/sparse-checkout",
        "old/.git/objects/info/commit-graph",
        "old/.git/worktrees/w/logs/HEAD",
        "old/.git/rebase-merge/done",
        "new/.git/COMMIT_EDITMSG",
        "bare/logs/HEAD",
        "bare/index",
        "later/logs/HEAD",
    ];
    init(&top.join("new"));
    bare(&top.join("bare"));
    bare(&top.join("later"));
    for name in names {
        fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
        let _there = symlink("../../../home", top.join(name));
    }
    // The tree's own files are nobody's business.
    symlink("x", top.join("old/link")).unwrap();
    let lines = nested.disarm_new().unwrap();
    let left: Vec<_> = names.iter().filter(|name| top.join(name).is_symlink()).collect();
    assert!(left.is_empty() && lines.len() == names.len(), "{left:?} {lines:#?}");
    assert!(top.join("old/link").is_symlink() && top.join("old/.git/refs/users").is_symlink());
    assert!(lines[0].contains("../../../home"), "{lines:#?}");
    assert_eq!(nested.disarm_new().unwrap(), Vec::<String>::new());
    // One that leads elsewhere now is another one.
    fs::remove_file(top.join("old/.git/refs/users")).unwrap();
    symlink("elsewhere", top.join("old/.git/refs/users")).unwrap();
    assert_eq!(nested.disarm_new().unwrap().len(), 1);
    // The next process of the agent knows those of the user.
    symlink("x", top.join("old/.git/ORIG_HEAD")).unwrap();
    let known = NestedRepos::new(Arc::new(Root::pin(&top).unwrap())).unwrap().known().clone();
    symlink("x", top.join("old/.git/MERGE_HEAD")).unwrap();
    let (_, lines) = NestedRepos::knowing(Arc::new(Root::pin(&top).unwrap()), known).unwrap();
    assert!(lines.len() == 1 && lines[0].contains("MERGE_HEAD"), "{lines:#?}");
}

/// A directory that nobody could look into is told once, and looked at again.
#[test]
fn a18_a_directory_that_a_look_cannot_see_is_told_and_looked_at_again() {
    let dir = tempfile::tempdir().unwrap();
    let top = fs::canonicalize(dir.path()).unwrap();
    let mut nested = NestedRepos::new(Arc::new(Root::pin(&top).unwrap())).unwrap();
    // Longer than any path.
    let deep =
        "import os, sys\nfor _ in range(30):\n os.mkdir('d' * 200); os.chdir('d' * 200)\nos.mkdir('.git')";
    let done = Command::new("python3").args(["-c", deep]).current_dir(&top).status().unwrap();
    assert!(done.success());
    let lines = nested.disarm_new().unwrap();
    assert!(lines.len() == 1 && lines[0].contains("nobody could look"), "{lines:#?}");
    assert_eq!(nested.disarm_new().unwrap(), Vec::<String>::new());
    let first = "d".repeat(200);
    let rest = fs::read_dir(top.join(&first)).unwrap().next().unwrap().unwrap().path();
    // Now its path is shorter; the directory itself has not changed.
    let mut at = rest;
    for _ in 0..15 {
        at = at.join("d".repeat(200));
    }
    fs::rename(&at, top.join("short")).unwrap();
    for _ in 0..13 {
        let next = fs::read_dir(top.join("short")).unwrap().next().unwrap().unwrap().path();
        if next.ends_with(".git") {
            break;
        }
        fs::rename(next, top.join("next")).unwrap();
        fs::remove_dir(top.join("short")).unwrap();
        fs::rename(top.join("next"), top.join("short")).unwrap();
    }
    fs::write(top.join("short/.git/config"), "[core]\n\tfsmonitor = evil\n").unwrap();
    let lines = nested.disarm_new().unwrap();
    assert!(lines.iter().any(|line| line.contains("config.not-used")), "{lines:#?}");
}
