//! w06: orphans go at a sweep, by the same rule; nothing else does.

use std::collections::BTreeSet;

use caliban_worktrees::{KeepWorktrees, RemovalOutcome, RemoveOptions, SweepMode, Swept};

use crate::lab::{Lab, create, make, names, slug, token, write};

#[tokio::test]
async fn w06_a_sweep_removes_orphans_and_nothing_else() {
    let lab = Lab::new();
    let repo = lab.open().await;
    make(&repo, "living").await;
    make(&repo, "clean").await;
    let held = create(&repo, "held").await;
    write(&make(&repo, "dirty").await.join("new"), "new");
    lab.git(&["worktree", "add", "-q", "-b", "users", ".caliban/worktrees/users"]);
    write(&lab.wt("users").join("work"), "work");
    std::fs::create_dir(lab.wt("half-made")).unwrap();
    write(&lab.wt(".trash").join("old-1/file"), "saved before");
    let live = BTreeSet::from([slug("living")]);
    let options = RemoveOptions::default();

    let before = lab.traces();
    let dry = repo.sweep(&live, SweepMode::DryRun, &options, &token()).await.unwrap();
    let orphan =
        |name: &str, needs_rescue| Swept::Orphan { name: slug(name), path: lab.wt(name), needs_rescue };
    let left = Swept::Left { name: slug("held"), why: "it is in use".into() };
    assert_eq!(dry.orphans, [orphan("clean", false), orphan("dirty", true), left]);
    assert_eq!(dry.leftovers, [lab.wt(".trash").join("old-1"), lab.wt("half-made")]);
    assert_eq!(lab.traces(), before, "a dry run does nothing");

    let kept = RemoveOptions { keep: KeepWorktrees::All, ..options };
    let report = repo.sweep(&live, SweepMode::Remove, &kept, &token()).await.unwrap();
    assert!(matches!(&report.orphans[0], Swept::Done(r) if r.outcome == RemovalOutcome::Kept), "{report:?}");
    assert!(lab.wt("dirty/new").exists());

    let report = repo.sweep(&live, SweepMode::Remove, &options, &token()).await.unwrap();
    let rescued: Vec<_> = report
        .orphans
        .iter()
        .map(|o| match o {
            Swept::Done(r) => (r.name.as_str().to_owned(), r.rescue.is_some()),
            Swept::Left { name, .. } => (format!("left {}", name.as_str()), false),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(rescued, [("clean".into(), false), ("dirty".into(), true), ("left held".into(), false)]);
    assert_eq!(names(&lab.repo().join(".caliban/worktrees")), ["held", "living", "users"]);
    assert!(lab.wt("users/work").exists(), "a worktree of the user's is never touched");
    assert_eq!(lab.git(&["show", "refs/caliban/rescue/dirty:new"]), "new");
    serde_json::to_string(&report).unwrap();
    drop(held);
    let report = repo.sweep(&live, SweepMode::Remove, &options, &token()).await.unwrap();
    assert_eq!(report.orphans.len(), 1, "let go of, it is an orphan too");
}

#[tokio::test]
async fn a_creation_that_was_killed_can_be_repeated_and_is_swept() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let before = lab.traces();
    // Killed after each of its first steps: the directory, the branch, git's record.
    let leave = |name: &str, steps: u32| {
        std::fs::create_dir_all(lab.wt(name)).unwrap();
        let branch = format!("caliban/{name}");
        if steps > 1 {
            lab.git(&["branch", &branch]);
        }
        if steps > 2 {
            let path = lab.wt(name);
            lab.git(&["worktree", "add", "-q", "--no-checkout", path.to_str().unwrap(), &branch]);
        }
    };
    for steps in 1..=3 {
        let name = format!("again-{steps}");
        leave(&name, steps);
        make(&repo, &name).await;
        assert_eq!(lab.git_at(lab.wt(&name), &["status", "--porcelain"]), "");
        crate::lab::remove(&repo, &name).await;
        leave(&format!("swept-{steps}"), steps);
    }
    let options = RemoveOptions::default();
    let report = repo.sweep(&BTreeSet::new(), SweepMode::Remove, &options, &token()).await.unwrap();
    assert_eq!(report.leftovers, [lab.wt("swept-1"), lab.wt("swept-2"), lab.wt("swept-3")]);
    assert_eq!(lab.traces(), before);
}

#[tokio::test]
async fn what_killed_removals_and_gits_left_in_the_store_goes_and_nothing_that_is_nowhere_else() {
    let lab = Lab::new();
    let repo = lab.open().await;
    make(&repo, "living").await;
    let store = lab.repo().join(".git");
    let private = |name: &str| store.join("caliban").join(name);
    for name in ["living", "gone", "unpublished"] {
        write(&private(name).join("git/HEAD"), "ref: refs/heads/x\n");
    }
    for name in ["living", "gone"] {
        write(&private(name).join("published"), "");
    }
    write(&private("only-a-lock").join("lock"), "");
    write(&private("gone.kept-1-2-3").join("git/HEAD"), "kept on purpose");
    let (old, young) = ("refs/caliban/tmp/save-1-0-1-tree.lock", "refs/caliban/tmp/save-2-0-1-tree.lock");
    write(&store.join(old), "");
    write(&store.join(young), "");
    write(&store.join("caliban-look-1-0-1/HEAD"), "");
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    for name in [old, "caliban-look-1-0-1"] {
        std::fs::File::open(store.join(name)).unwrap().set_modified(long_ago).unwrap();
    }
    let expected =
        [private("gone"), private("only-a-lock"), store.join(old), store.join("caliban-look-1-0-1")];
    let swept = |mode| {
        let mut found = repo.clear_leftovers(&BTreeSet::new(), mode);
        found.sort();
        found
    };
    let sorted = |mut paths: Vec<std::path::PathBuf>| {
        paths.sort();
        paths
    };
    assert_eq!(swept(SweepMode::DryRun), sorted(expected.to_vec()));
    assert!(expected.iter().all(|path| path.exists()), "a dry run does nothing");
    assert_eq!(swept(SweepMode::Remove), sorted(expected.to_vec()));
    assert!(!expected.iter().any(|path| path.exists()));
    assert_eq!(names(&store.join("caliban")), ["gone.kept-1-2-3", "living", "unpublished"]);
    assert!(store.join(young).exists(), "somebody may be at work there");
    // Again and again.
    assert_eq!(swept(SweepMode::Remove), Vec::<std::path::PathBuf>::new());
}
