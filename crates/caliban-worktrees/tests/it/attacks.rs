//! a03–a07: names, arguments, links, hostile configuration and hostile directories.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use caliban_core::names::Slug;
use caliban_worktrees::{BaseRef, BranchFate, CreateRequest, Error, ErrorKind, RemoveOptions, RestoreTo};

use crate::lab::{
    Lab, Node, make, make_executable, names, quiet, remove, slug, token, tree, try_create, write,
};

#[test]
fn a03_no_hostile_name_is_a_name() {
    let long = "x".repeat(300);
    for name in [
        "../x",
        "-b",
        ".git",
        "a/../../b",
        "a\0b",
        "a\nb",
        long.as_str(),
        "HEAD",
        "head",
        "a b",
        "x.lock",
        "",
        ".",
        "..",
        "a..b",
        "x/",
        "caliban/x",
        "ｘ",
        "а",
    ] {
        assert!(Slug::parse(name).is_err(), "{name:?}");
    }
}

#[tokio::test]
async fn a04_a_base_ref_is_never_an_option() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let before = lab.traces();
    let ran = lab.top().join("ran");
    for base in [
        format!("--upload-pack=touch {}", ran.display()),
        "--all".into(),
        "-b".into(),
        "--git-dir".into(),
        "HEAD\n--all".into(),
        "HEAD\0".into(),
        "--end-of-options".into(),
        "HEAD --".into(),
        "@{-1}".into(),
    ] {
        let base_ref = BaseRef::Revision(base.clone());
        let error =
            try_create(&repo, CreateRequest { base_ref, ..CreateRequest::new(slug("x")) }).await.unwrap_err();
        assert!(matches!(error, Error::UnknownRevision { .. }), "{base:?}: {error}");
    }
    assert!(!ran.exists());
    assert_eq!(lab.traces(), before);
}

#[tokio::test]
async fn a04_sparse_paths_are_never_options_or_second_patterns() {
    let lab = Lab::new();
    lab.write("-dash/x", "x");
    lab.write("quo\"te/x", "x");
    lab.write("star*/x", "x");
    lab.git(&["add", "-A"]);
    lab.git(&["commit", "-qm", "odd names"]);
    let repo = lab.open().await;
    let before = lab.traces();
    for bad in ["a\nsrc", "..", "/etc", "a/../..", ".git", "a\0b", "src/\r"] {
        let sparse_paths = vec![bad.into()];
        let error = try_create(&repo, CreateRequest { sparse_paths, ..CreateRequest::new(slug("x")) })
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{bad:?}: {error}");
    }
    assert_eq!(lab.traces(), before);
    for (n, odd) in ["-dash", "quo\"te", "star*"].into_iter().enumerate() {
        let sparse_paths = vec![odd.into()];
        let asked = CreateRequest { sparse_paths, ..CreateRequest::new(slug(&format!("x{n}"))) };
        let path = try_create(&repo, asked).await.unwrap().created.path;
        let mut expected = vec![".git", ".gitignore", "README.md", "run.sh", odd];
        expected.sort();
        assert_eq!(names(&path), expected);
    }
}

#[tokio::test]
async fn a05_links_that_lead_out_are_refused() {
    let lab = Lab::new();
    write(&lab.home().join("secret"), "secret");
    symlink(lab.home(), lab.repo().join("link-to-home")).unwrap();
    lab.write("inner/x", "x");
    symlink("../..", lab.repo().join("inner/up")).unwrap();
    symlink("inner", lab.repo().join("link-inside")).unwrap();
    let repo = lab.open().await;
    let before = lab.traces();
    for bad in [
        "..",
        "a/../..",
        "/etc",
        "link-to-home",
        "link-to-home/x",
        ".git",
        ".git/hooks",
        ".GIT",
        "inner/up",
        "inner/up/home",
        "link-inside",
        "",
        ".",
        ".caliban",
        "a\0b",
        "inner/../..",
    ] {
        let symlink_directories = vec![bad.into()];
        let asked = CreateRequest { symlink_directories, ..CreateRequest::new(slug("x")) };
        let error = try_create(&repo, asked).await.unwrap_err();
        assert!(matches!(error, Error::Link { .. }), "{bad:?}: {error}");
    }
    assert_eq!(lab.traces(), before);
}

#[tokio::test]
async fn a07_a_place_that_is_a_link_is_refused() {
    let lab = Lab::new();
    let repo = lab.open().await;
    symlink(lab.home(), lab.repo().join(".caliban")).unwrap();
    let error = try_create(&repo, CreateRequest::new(slug("x"))).await.unwrap_err();
    assert!(matches!(error, Error::Place { .. }), "{error}");
    assert_eq!(names(&lab.home()), Vec::<String>::new());
}

/// Everything an agent could plant to have something run, or written elsewhere, when others use git.
struct Planted {
    ran: PathBuf,
    canary: PathBuf,
}

impl Planted {
    fn new(lab: &Lab, path: &Path) -> Self {
        let (ran, canary) = (lab.top().join("ran"), lab.home().join(".bashrc"));
        write(&canary, "untouched\n");
        let script = lab.top().join("evil");
        write(&script, format!("#!/bin/sh\necho \"$@\" >> {}\ncat\n", ran.display()));
        make_executable(&script);
        let evil = script.to_str().unwrap();
        let admin = lab.repo().join(".git/worktrees").join(path.file_name().unwrap());
        // In what it can reach: its files, its record, and here even the shared configuration.
        for (key, value) in [
            ("core.fsmonitor", evil),
            ("core.pager", evil),
            ("core.editor", evil),
            ("core.sshCommand", evil),
            ("core.alternateRefsCommand", evil),
            ("diff.external", evil),
            ("diff.evil.command", evil),
            ("diff.evil.textconv", evil),
            ("filter.evil.clean", evil),
            ("filter.evil.smudge", evil),
            ("filter.evil.required", "true"),
            ("filter.a=b.process", evil),
            ("filter.a=b.required", "true"),
            ("merge.evil.driver", evil),
            ("gpg.program", evil),
            ("log.showSignature", "true"),
            ("commit.gpgSign", "true"),
            ("core.worktree", lab.home().to_str().unwrap()),
            ("uploadpack.packObjectsHook", evil),
            ("gc.recentObjectsHook", evil),
            ("alias.status", &format!("!{evil}")),
        ] {
            lab.git_at(path, &["config", "--worktree", key, value]);
            if key != "core.worktree" {
                lab.git(&["config", key, value]);
            }
        }
        let attributes = "* filter=evil diff=evil merge=evil\n*.rs filter=a=b\n";
        write(&path.join(".gitattributes"), attributes);
        write(&lab.repo().join(".git/info/attributes"), attributes);
        write(
            &path.join(".gitmodules"),
            "[submodule \"n\"]\n\tpath = nested\n\turl = ext::evil\n\tignore = none\n",
        );
        for hooks in [lab.repo().join(".git/hooks"), admin.join("hooks")] {
            for hook in
                ["post-checkout", "reference-transaction", "post-index-change", "pre-commit", "pre-auto-gc"]
            {
                write(&hooks.join(hook), format!("#!/bin/sh\n{evil} hook\n"));
                make_executable(&hooks.join(hook));
            }
        }
        for file in ["COMMIT_EDITMSG", "ORIG_HEAD", "FETCH_HEAD"] {
            let _none = std::fs::remove_file(admin.join(file));
            symlink(&canary, admin.join(file)).unwrap();
        }
        Self { ran, canary }
    }

    fn assert_nothing_happened(&self, when: &str) {
        let ran = std::fs::read_to_string(&self.ran).unwrap_or_default();
        assert_eq!(ran, "", "ran at {when}");
        assert_eq!(std::fs::read_to_string(&self.canary).unwrap(), "untouched\n", "{when}");
    }
}

#[tokio::test]
async fn a06_nothing_that_an_agent_planted_runs() {
    let lab = Lab::new();
    lab.git(&["config", "extensions.worktreeConfig", "true"]);
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("src/lib.rs"), "committed\n");
    lab.git_at(&path, &["commit", "-qam", "work"]);
    lab.write("src/lib.rs", "the user's own\n");
    lab.git(&["commit", "-qam", "other work"]);
    write(&path.join("README.md"), "changed\n");
    write(&path.join("new.rs"), "new\n");
    lab.git_at(&path, &["init", "-q", "nested"]);
    write(&path.join("nested/x"), "x");
    let planted = Planted::new(&lab, &path);
    write(&path.join("nested/.git/info/attributes"), "* filter=evil\n");
    let was = tree(&path);
    // That it would run is shown, or this test shows nothing.
    let _status = lab.try_git(&path, &["diff", "--ext-diff"]);
    assert!(planted.ran.exists(), "plain git runs it");
    std::fs::remove_file(&planted.ran).unwrap();

    repo.list(&token()).await.unwrap();
    planted.assert_nothing_happened("list");
    let look = repo.inspect(&slug("x"), &token()).await.unwrap();
    planted.assert_nothing_happened("inspect");
    assert_eq!((look.ahead, look.needs_rescue), (1, true));
    let changes = repo.changes(&slug("x"), &token()).await.unwrap();
    planted.assert_nothing_happened("changes");
    assert!(changes.files.iter().any(|f| f.path == "README.md"));
    repo.patch(&slug("x"), &token()).await.unwrap();
    planted.assert_nothing_happened("patch");
    let preview = repo.merge_preview(&slug("x"), None, &token()).await.unwrap();
    planted.assert_nothing_happened("merge preview");
    assert_eq!(preview.conflicts, ["src/lib.rs"]);
    let report = remove(&repo, "x").await;
    planted.assert_nothing_happened("remove");
    assert_eq!(names(&lab.home()), [".bashrc"]);
    assert!(matches!(report.branch_fate, BranchFate::Kept { ahead: 1, .. }));
    let back = lab.top().join("back");
    repo.restore("x", RestoreTo::Directory(back.clone()), &quiet, &token()).await.unwrap();
    planted.assert_nothing_happened("restore");
    let restored = tree(&back);
    let restored = restored
        .into_iter()
        .map(|(p, n)| (p.to_string_lossy().replace(".git.caliban-rescue", ".git").into(), n));
    assert_eq!(restored.collect::<std::collections::BTreeMap<PathBuf, _>>(), was);
}

#[tokio::test]
async fn a06_a_replaced_git_file_or_commondir_is_not_believed() {
    let lab = Lab::new();
    // A second repository, the victim or the trap.
    lab.git_at(lab.top(), &["clone", "-q", "repo", "trap"]);
    let trap = lab.top().join("trap/.git");
    let trap_before = tree(&lab.top().join("trap"));
    let repo = lab.open().await;
    for (name, tamper) in [("file", 0), ("directory", 1), ("commondir", 2), ("link", 3), ("gone", 4)] {
        let path = make(&repo, name).await;
        write(&path.join("work"), "work");
        let git = path.join(".git");
        let admin = lab.repo().join(".git/worktrees").join(name);
        match tamper {
            0 => write(&git, format!("gitdir: {}\n", trap.display())),
            1 => {
                std::fs::remove_file(&git).unwrap();
                lab.git_at(&path, &["init", "-q"]);
                lab.git_at(&path, &["add", "work"]);
                lab.git_at(&path, &["commit", "-qm", "in a repository of its own"]);
            }
            2 => write(&admin.join("commondir"), format!("{}\n", trap.display())),
            3 => {
                std::fs::remove_file(&git).unwrap();
                symlink(&trap, &git).unwrap();
            }
            _ => std::fs::remove_file(&git).unwrap(),
        }
        let report = remove(&repo, name).await;
        assert!(!path.exists(), "{name}");
        let rescue = report.rescue.unwrap();
        assert_eq!(lab.git(&["show", &format!("{}:work", rescue.commit)]), "work", "{name}");
        if tamper == 1 {
            let listed = lab.git(&["ls-tree", "-r", "--name-only", rescue.commit.as_str()]);
            assert!(listed.contains(".git.caliban-rescue/HEAD"), "its own history is saved: {listed}");
        }
    }
    assert_eq!(tree(&lab.top().join("trap")), trap_before);
    assert_eq!(lab.git_at(lab.top().join("trap"), &["for-each-ref", "refs/caliban"]), "");
}

#[tokio::test]
async fn a06_a_broken_record_loses_nothing() {
    let lab = Lab::new();
    let repo = lab.open().await;
    for (name, file, content) in [
        ("escape", "HEAD", "ref: ../../../../etc/passwd\n"),
        ("garbage", "HEAD", "garbage"),
        ("index", "index", "not an index"),
    ] {
        let path = make(&repo, name).await;
        write(&path.join("work"), "work");
        write(&path.join("x.log"), "even what is ignored");
        write(&lab.repo().join(".git/worktrees").join(name).join(file), content);
        let mut was = tree(&path);
        let report = remove(&repo, name).await;
        let mut notes = vec!["git could not read its record, so every file in it was saved"];
        if file == "index" {
            notes.push("its index could not be read and is saved as a file");
            was.insert(".caliban-rescue/index".into(), Node::File(content.into(), false));
        }
        assert_eq!(report.notes, notes, "{name}");
        let back = lab.top().join(format!("back-{name}"));
        repo.restore(name, RestoreTo::Directory(back.clone()), &quiet, &token()).await.unwrap();
        assert_eq!(tree(&back), was, "{name}");
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn a06_a_forged_marker_deletes_nothing_of_others() {
    let lab = Lab::new();
    let repo = lab.open().await;
    make(&repo, "x").await;
    lab.git(&["worktree", "add", "-q", "-b", "users", "../users"]);
    let admin = |name: &str| lab.repo().join(".git/worktrees").join(name);
    // The user's own worktree gets a marker that calls it ours.
    std::fs::copy(admin("x").join("caliban.json"), admin("users").join("caliban.json")).unwrap();
    write(&lab.top().join("users/work"), "work");
    let report = remove(&repo, "x").await;
    assert_eq!(report.path, lab.wt("x"));
    assert!(lab.top().join("users/work").exists());
    let error = repo.remove(&slug("x"), None, &RemoveOptions::default(), &token()).await.unwrap_err();
    assert!(matches!(error, Error::Moved { .. }), "{error}");
    assert!(lab.top().join("users/work").exists());
}

#[tokio::test]
async fn a07_a_worktree_full_of_links_to_home_touches_nothing_there() {
    let lab = Lab::new();
    let repo = lab.open().await;
    write(&lab.home().join("keep/file"), "keep");
    let path = make(&repo, "x").await;
    for n in 0..50 {
        symlink(lab.home(), path.join(format!("link-{n}"))).unwrap();
        symlink(lab.home().join("keep"), path.join(format!("src/deep/link-{n}"))).unwrap();
    }
    std::fs::remove_dir_all(path.join("docs")).unwrap();
    symlink(lab.home().join("keep"), path.join("docs")).unwrap();
    write(&path.join(".gitignore"), "target/\n");
    symlink(lab.home(), path.join("target")).unwrap();
    let before = tree(&lab.home());
    let report = remove(&repo, "x").await;
    assert_eq!(tree(&lab.home()), before);
    let rescue = report.rescue.unwrap();
    let listed = lab.git(&["ls-tree", "-r", rescue.commit.as_str()]);
    assert_eq!(listed.lines().filter(|l| l.starts_with("120000")).count(), 102, "links, as links:\n{listed}");
}

#[tokio::test]
async fn a07_a_worktree_swapped_for_a_link_removes_only_the_link() {
    let lab = Lab::new();
    let repo = lab.open().await;
    write(&lab.home().join("keep"), "keep");
    let path = make(&repo, "x").await;
    std::fs::rename(&path, lab.top().join("away")).unwrap();
    symlink(lab.home(), &path).unwrap();
    let before = tree(&lab.home());
    remove(&repo, "x").await;
    assert!(path.symlink_metadata().is_err());
    assert_eq!(tree(&lab.home()), before);
    assert!(lab.top().join("away/README.md").exists());
}

#[tokio::test]
async fn a07_a_directory_swapped_again_and_again_leads_nowhere() {
    let lab = Lab::new();
    let repo = lab.open().await;
    write(&lab.home().join("f"), "keep");
    write(&lab.home().join("deep/f"), "keep");
    let before = tree(&lab.home());
    for round in 0..6 {
        let name = format!("x{round}");
        let path = make(&repo, &name).await;
        write(&path.join("work/f"), "mine");
        write(&path.join("work/deep/f"), "mine");
        let (stop, done) = (std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)), path.clone());
        let (home, flag) = (lab.home(), stop.clone());
        let swapper = std::thread::spawn(move || {
            let (work, real) = (done.join("work"), done.join("real"));
            while !flag.load(std::sync::atomic::Ordering::Relaxed) {
                let _raced = std::fs::rename(&work, &real);
                let _raced = symlink(&home, &work);
                let _raced = std::fs::remove_file(&work);
                let _raced = std::fs::rename(&real, &work);
            }
        });
        // It may refuse while things move; it may not touch what is outside.
        let _either = repo.remove(&slug(&name), None, &RemoveOptions::default(), &token()).await;
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        swapper.join().unwrap();
        assert_eq!(tree(&lab.home()), before, "round {round}");
        for rescue in repo.rescues(&token()).await.unwrap() {
            let found = lab.try_git(lab.repo(), &["grep", "-l", "keep", rescue.commit.as_str()]);
            assert_eq!(found.status.code(), Some(1), "nothing from outside was read");
        }
    }
}

#[tokio::test]
async fn a07_read_only_and_very_deep_directories_go() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("target/cache/mod/file"), "x");
    std::fs::set_permissions(path.join("target/cache/mod"), std::fs::Permissions::from_mode(0o555)).unwrap();
    // Deeper than any path can name: made one step at a time, beneath an ignored directory.
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let mut at = rustix::fs::open(path.join("target"), flags, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..700 {
        rustix::fs::mkdirat(&at, "ddddddddddddddd", rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "ddddddddddddddd", flags, rustix::fs::Mode::empty()).unwrap();
    }
    let report = remove(&repo, "x").await;
    assert_eq!((report.rescue, report.dropped_ignored), (None, vec!["target".to_owned()]));
    assert_eq!(names(&lab.repo().join(".caliban/worktrees")), Vec::<String>::new());
}
