//! Creation: w01–w05, w08, w09 and what else the issue asks of it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use caliban_worktrees::{
    BaseRef, CreateRequest, Created, CreationPhase, Error, ErrorKind, Oid, Presence, Progress, Repo, Setup,
    Use, Worktree,
};

use crate::lab::{Lab, create, make, names, paths, quiet, remove, slug, token, tree, try_create, write};

fn request(name: &str) -> CreateRequest {
    CreateRequest::new(slug(name))
}

fn setup(lab: &Lab, command: &str, timeout_seconds: u32) -> Option<Setup> {
    let environment = lab.environment().into_iter().chain([("GIT_DIR".into(), "/nowhere".into())]).collect();
    Some(Setup { command: command.into(), timeout_seconds, environment, helper: helper(), fence: None })
}

/// The example `reap-setup` of this crate: cargo builds it beside the tests.
fn helper() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let helper = exe.parent().and_then(Path::parent).unwrap().join("examples/reap-setup");
    assert!(helper.exists(), "{} is missing: cargo build -p caliban-worktrees --examples", helper.display());
    helper
}

fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

#[tokio::test]
async fn w01_branch_and_place_are_as_promised() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let worktree = create(&repo, "one").await;
    let base = Oid::parse(&lab.git(&["rev-parse", "HEAD"])).unwrap();
    let expected = Created {
        name: slug("one"),
        path: lab.wt("one"),
        branch: "caliban/one".into(),
        base,
        links: vec![],
        included: vec![],
        notes: vec![],
    };
    assert_eq!(worktree.created, expected);
    let mut main = tree(&lab.repo());
    main.retain(|path, _| !path.starts_with(".caliban"));
    assert_eq!(tree(&lab.wt("one")), main);
    assert_eq!(lab.git_at(lab.wt("one"), &["status", "--porcelain", "--branch"]), "## caliban/one");
    assert_eq!(lab.git(&["status", "--porcelain"]), "", "the main tree stays clean");
    assert_eq!(lab.git(&["diff", "--stat"]), "");
}

#[tokio::test]
async fn w02_writes_in_the_worktree_do_not_touch_the_main_tree() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "one").await;
    write(&path.join("README.md"), "changed");
    write(&path.join("new.txt"), "new");
    assert_eq!(std::fs::read_to_string(lab.repo().join("README.md")).unwrap(), "read me\n");
    assert_eq!(lab.git(&["status", "--porcelain"]), "");
}

#[tokio::test]
async fn w03_base_ref_takes_head_fresh_and_any_revision() {
    let lab = Lab::new();
    let repo = lab.open().await;
    lab.git(&["tag", "v1"]);
    lab.write("later.txt", "later");
    lab.git(&["add", "-A"]);
    lab.git(&["commit", "-qm", "later"]);
    for (text, name, revision, there) in [
        ("head", "a", "HEAD", true),
        ("v1", "b", "v1", false),
        ("HEAD~1", "c", "v1", false),
        ("main", "d", "HEAD", true),
        ("", "e", "HEAD", true),
    ] {
        let base_ref = BaseRef::from(text.to_owned());
        let made = try_create(&repo, CreateRequest { base_ref, ..request(name) }).await.unwrap();
        assert_eq!(made.created.base.as_str(), lab.git(&["rev-parse", revision]), "{text}");
        assert_eq!(made.created.path.join("later.txt").exists(), there, "{text}");
    }
    let full = lab.git(&["rev-parse", "v1"]);
    let made =
        try_create(&repo, CreateRequest { base_ref: BaseRef::Revision(full), ..request("f") }).await.unwrap();
    assert!(!made.created.path.join("later.txt").exists());
    let unknown = CreateRequest { base_ref: BaseRef::Revision("nowhere".into()), ..request("g") };
    let error = try_create(&repo, unknown).await.unwrap_err();
    assert_eq!(error.to_string(), "base_ref 'nowhere' names no commit in this repository");
    assert_eq!(error.kind(), ErrorKind::Usage);
}

#[tokio::test]
async fn w03_fresh_has_hardly_a_file_and_is_clean() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let made = try_create(&repo, CreateRequest { base_ref: BaseRef::Fresh, ..request("f") }).await.unwrap();
    let path = made.created.path;
    assert_eq!(paths(&path), [".gitignore", "README.md", "run.sh"], "no directory was checked out");
    assert_eq!(lab.git_at(&path, &["status", "--porcelain"]), "");
    lab.git_at(&path, &["sparse-checkout", "add", "src"]);
    assert!(path.join("src/lib.rs").exists(), "ordinary git can widen it");
}

#[tokio::test]
async fn w04_sparse_paths_are_a_real_cone() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let sparse_paths = vec!["src/deep/".into(), "README.md".into(), "missing/".into()];
    let made = try_create(&repo, CreateRequest { sparse_paths, ..request("s") }).await.unwrap();
    let path = &made.created.path;
    assert_eq!(paths(path), [".gitignore", "README.md", "run.sh", "src/deep/a.rs", "src/lib.rs"]);
    assert_eq!(lab.git_at(path, &["status", "--porcelain"]), "");
    assert_eq!(lab.git_at(path, &["config", "core.sparseCheckoutCone"]), "true");
    let base = made.created.base.short().to_owned();
    assert_eq!(made.created.notes, [format!("sparse path 'missing' is not in {base}")]);
    assert_eq!(lab.git(&["status", "--porcelain"]), "", "the main tree is not sparse");
    assert!(lab.repo().join("docs/guide.md").exists());
    lab.git(&["reset", "--hard", "-q"]);
    assert!(lab.repo().join("docs/guide.md").exists());
    drop(made);
    let report = remove(&repo, "s").await;
    assert_eq!((report.rescue, report.dirty), (None, vec![]), "absent files are not deletions");
}

#[tokio::test]
async fn w05_directories_are_linked_not_copied() {
    let lab = Lab::new();
    let repo = lab.open().await;
    lab.write("target/debug/out", "built");
    lab.write("deps/nested/cache/x", "x");
    let symlink_directories = vec!["target/".into(), "deps/nested".into()];
    let made = try_create(&repo, CreateRequest { symlink_directories, ..request("l") }).await.unwrap();
    let path = made.created.path.clone();
    assert_eq!(std::fs::read_link(path.join("target")).unwrap(), lab.repo().join("target"));
    assert_eq!(std::fs::read_link(path.join("deps/nested")).unwrap(), lab.repo().join("deps/nested"));
    assert_eq!(std::fs::read_to_string(path.join("target/debug/out")).unwrap(), "built");
    assert_eq!(made.created.links, ["target", "deps/nested"]);
    assert_eq!(
        made.created.notes,
        ["deps/nested is not ignored by git: `git add -A` would commit the link"],
        "target is ignored, deps is not"
    );
    assert_eq!(lab.git_at(&path, &["status", "--porcelain", "--", "target"]), "", "the link is ignored too");
    drop(made);
    let report = remove(&repo, "l").await;
    assert_eq!((report.rescue, report.dirty), (None, vec![]));
    assert_eq!(std::fs::read_to_string(lab.repo().join("target/debug/out")).unwrap(), "built");
    assert!(lab.repo().join("deps/nested/cache/x").exists());
}

#[tokio::test]
async fn w05_a_directory_that_does_not_exist_is_an_error_and_leaves_nothing() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let before = lab.traces();
    for (wanted, why) in
        [("nope", "it does not exist"), ("README.md", "it is no directory, or there is a link on the way")]
    {
        let symlink_directories = vec![wanted.into()];
        let error =
            try_create(&repo, CreateRequest { symlink_directories, ..request("l") }).await.unwrap_err();
        assert_eq!(error.to_string(), format!("symlink_directories '{wanted}' is refused: {why}"));
        assert_eq!(error.kind(), ErrorKind::Refused);
    }
    let tracked = CreateRequest { symlink_directories: vec!["src".into()], ..request("l") };
    let error = try_create(&repo, tracked).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "symlink_directories 'src' is refused: git tracks it, so the worktree has its own"
    );
    assert_eq!(lab.traces(), before);
}

#[tokio::test]
async fn w08_a_second_of_the_same_name_is_a_clear_error() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let _held = create(&repo, "one").await;
    let error = try_create(&repo, request("one")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("a worktree named 'one' already exists at {}", lab.wt("one").display())
    );
    assert_eq!(
        error.hint().unwrap(),
        "choose another name, or remove it with `caliban worktrees rm one` (its work is kept)"
    );
    assert_eq!(error.kind(), ErrorKind::Conflict);
    drop(_held);
    let error = try_create(&repo, request("one")).await.unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "held or not: {error}");
    assert!(lab.wt("one").join("README.md").exists(), "the first is unharmed");
}

#[tokio::test]
async fn w08_of_two_at_once_one_wins() {
    let lab = Lab::new();
    let repo = lab.open().await;
    for round in 0..5 {
        let name = format!("same-{round}");
        let (a, b) = tokio::join!(try_create(&repo, request(&name)), try_create(&repo, request(&name)));
        let (won, lost) = match (a, b) {
            (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
            other => panic!("{other:?}"),
        };
        assert!(matches!(lost, Error::Exists { .. }), "{lost}");
        assert_eq!(lab.git_at(&won.created.path, &["status", "--porcelain"]), "");
    }
}

#[tokio::test]
async fn w08_different_names_at_once_all_succeed() {
    let lab = Lab::new();
    lab.write("target/x", "x");
    let repo = lab.open().await;
    let mut running = tokio::task::JoinSet::new();
    for n in 0..8 {
        let repo = repo.clone();
        running.spawn(async move {
            let sparse_paths = if n % 2 == 0 { vec!["src/".into()] } else { vec![] };
            let symlink_directories = vec!["target".into()];
            try_create(
                &repo,
                CreateRequest { sparse_paths, symlink_directories, ..request(&format!("n{n}")) },
            )
            .await
        });
    }
    let made = running.join_all().await;
    for worktree in made {
        let path = worktree.unwrap().created.path;
        assert_eq!(lab.git_at(&path, &["status", "--porcelain"]), "");
    }
    let exclude = std::fs::read_to_string(lab.repo().join(".git/info/exclude")).unwrap();
    for line in ["/.caliban/worktrees/", "/target"] {
        assert_eq!(exclude.lines().filter(|l| *l == line).count(), 1, "{line} once in {exclude}");
    }
}

#[tokio::test]
async fn w09_ordinary_git_lists_merges_and_deletes_the_branch() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "one").await;
    write(&path.join("new.txt"), "new");
    lab.git_at(&path, &["add", "-A"]);
    lab.git_at(&path, &["commit", "-qm", "work"]);
    assert_eq!(lab.git(&["branch", "--list", "caliban/*"]), "+ caliban/one");
    lab.git(&["merge", "-q", "caliban/one"]);
    assert!(lab.repo().join("new.txt").exists());
    lab.git(&["worktree", "remove", ".caliban/worktrees/one"]);
    lab.git(&["branch", "-d", "caliban/one"]);
    assert_eq!(repo.list(&token()).await.unwrap(), []);
}

#[tokio::test]
async fn included_files_are_copied_and_links_are_not_followed() {
    let lab = Lab::new();
    let repo = lab.open().await;
    lab.write(".worktreeinclude", "# local files\n.env\nconf/*.local\n!conf/no.local\nout\n*.md\n");
    lab.write(".env", "SECRET=1");
    std::fs::set_permissions(lab.repo().join(".env"), std::fs::Permissions::from_mode(0o600)).unwrap();
    lab.write("conf/a.local", "a");
    lab.write("conf/no.local", "no");
    write(&lab.home().join("private"), "private");
    std::os::unix::fs::symlink(lab.home(), lab.repo().join("out")).unwrap();
    lab.git(&["add", ".worktreeinclude"]);
    lab.git(&["commit", "-qm", "include"]);
    let made = create(&repo, "i").await;
    let path = made.created.path.clone();
    assert_eq!(std::fs::read_to_string(path.join(".env")).unwrap(), "SECRET=1");
    assert_eq!(path.join(".env").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(made.created.included, [".env", "conf/a.local"]);
    assert_eq!(made.created.notes, ["out was not copied: it is a link"]);
    assert!(path.join("out").symlink_metadata().is_err());
    drop(made);
    let second = make(&repo, "j").await;
    assert!(second.join(".env").exists(), "copies inside worktrees are not taken for the user's");
    let report = remove(&repo, "i").await;
    assert_eq!((report.rescue, report.dirty), (None, vec![]), "an unchanged copy is nothing new");
}

#[tokio::test]
async fn setup_runs_in_the_worktree() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let command = setup(&lab, "pwd > where && echo \"$CALIBAN_REPO_ROOT\" >> where", 60);
    let made = try_create(&repo, CreateRequest { setup: command, ..request("s") }).await.unwrap();
    let said = std::fs::read_to_string(made.created.path.join("where")).unwrap();
    assert_eq!(said, format!("{}\n{}\n", lab.wt("s").display(), lab.repo().display()));
}

#[tokio::test]
async fn a_failed_setup_shows_its_output_and_leaves_nothing() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let before = lab.traces();
    let command = setup(&lab, "echo one; echo two >&2; touch made; exit 3", 60);
    let error = try_create(&repo, CreateRequest { setup: command, ..request("s") }).await.unwrap_err();
    match &error {
        Error::Setup { ending, output, .. } => {
            assert_eq!((ending.as_str(), output.as_str()), ("failed with exit code 3", "one\ntwo"));
        }
        other => panic!("{other}"),
    }
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert_eq!(lab.traces(), before);
}

#[tokio::test]
async fn a_setup_over_its_time_is_ended_with_its_children() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let before = lab.traces();
    let pid = lab.top().join("pid");
    let command = setup(&lab, &format!("sleep 1000 & echo $! > {}; echo started; wait", pid.display()), 1);
    let error = try_create(&repo, CreateRequest { setup: command, ..request("s") }).await.unwrap_err();
    match &error {
        Error::Setup { ending, output, .. } => {
            assert_eq!((ending.as_str(), output.as_str()), ("took longer than 1 s and was ended", "started"));
        }
        other => panic!("{other}"),
    }
    assert!(is_gone(&std::fs::read_to_string(pid).unwrap()));
    assert_eq!(lab.traces(), before);
}

/// What a setup command starts in the background does not outlive it, whether it fails or succeeds.
#[tokio::test]
async fn r06_a_setup_that_succeeds_leaves_no_process() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let command = "sleep 1000 & echo $! > near; setsid sh -c 'trap \"\" TERM; echo $$ > far; exec sleep 1000' & \
                   while [ ! -s far ]; do sleep 0.01; done; [ -z \"$GIT_DIR\" ]";
    let command = setup(&lab, command, 60);
    let made = try_create(&repo, CreateRequest { setup: command, ..request("s") }).await.unwrap();
    for pid in ["near", "far"] {
        let pid = std::fs::read_to_string(made.created.path.join(pid)).unwrap();
        assert!(is_gone(&pid), "{pid}");
    }
}

#[tokio::test]
async fn a_cancelled_creation_leaves_nothing() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let before = lab.traces();
    let cancel = token();
    let stop = |step: Progress| {
        if step.phase == CreationPhase::Setup {
            cancel.cancel();
        }
    };
    let asked = CreateRequest { setup: setup(&lab, "sleep 1000", 2000), ..request("c") };
    let error = repo.create(asked, &stop, &cancel).await.unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    assert_eq!(lab.traces(), before);
}

#[tokio::test]
async fn progress_counts_files() {
    let lab = Lab::new();
    for n in 0..300 {
        lab.write(&format!("many/{n}"), "x");
    }
    lab.git(&["add", "-A"]);
    lab.git(&["commit", "-qm", "many"]);
    let repo = lab.open().await;
    let seen = Mutex::new(Vec::new());
    let note = |step: Progress| seen.lock().unwrap().push(step);
    repo.create(request("p"), &note, &token()).await.unwrap();
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.first(), Some(&Progress { phase: CreationPhase::Resolve, done: 0, total: 0 }));
    assert_eq!(seen.last(), Some(&Progress { phase: CreationPhase::Checkout, done: 306, total: 306 }));
}

#[tokio::test]
async fn the_list_tells_what_is_there() {
    let lab = Lab::new();
    let repo = lab.open().await;
    assert_eq!(repo.list(&token()).await.unwrap(), []);
    let held =
        try_create(&repo, CreateRequest { owner: Some("agent-1".into()), ..request("a") }).await.unwrap();
    make(&repo, "b").await;
    make(&repo, "c").await;
    std::fs::remove_dir_all(lab.wt("c")).unwrap();
    make(&repo, "d").await;
    lab.git(&["worktree", "move", ".caliban/worktrees/d", "../moved"]);
    lab.git(&["worktree", "add", "-q", "-b", "users", ".caliban/worktrees/users"]);
    let list = repo.list(&token()).await.unwrap();
    let seen: Vec<_> = list.iter().map(|l| (l.name.as_str(), l.presence.clone(), l.usage)).collect();
    let moved = Presence::Moved(lab.top().join("moved"));
    assert_eq!(
        seen,
        [
            ("a", Presence::Present, Use::InUse),
            ("b", Presence::Present, Use::Free),
            ("c", Presence::Missing, Use::Free),
            ("d", moved, Use::Free),
        ]
    );
    assert_eq!(list[0].owner.as_deref(), Some("agent-1"));
    assert_eq!(list[0].tip.as_ref(), Some(&held.created.base));
    assert_eq!(list[0].path, lab.wt("a"));
    serde_json::to_string(&list).unwrap();
    assert_eq!(names(&lab.repo().join(".caliban/worktrees")), ["a", "b", "users"]);
}

#[tokio::test]
async fn creating_is_a_future_that_can_be_sent() {
    fn sendable<T: Send>(value: T) -> T {
        value
    }
    let lab = Lab::new();
    let repo = lab.open().await;
    let (cancel, name) = (token(), slug("x"));
    sendable(repo.create(request("x"), &quiet, &cancel)).await.unwrap();
    sendable(repo.inspect(&name, &cancel)).await.unwrap();
    sendable(repo.changes(&name, &cancel)).await.unwrap();
    sendable(repo.remove(&name, None, &Default::default(), &cancel)).await.unwrap();
}

#[test]
fn the_reference_names_the_defaults() {
    let guide = include_str!("../../../../docs/reference/worktrees.md");
    for said in [
        format!("({} seconds unless set otherwise)", caliban_worktrees::SETUP_SECONDS),
        format!("`{}/<name>/`", caliban_worktrees::PLACE),
        format!("`{}<name>`", caliban_worktrees::BRANCH_PREFIX),
        format!("`{}<name>`", caliban_worktrees::RESCUE_PREFIX),
        format!("`.git{}`", caliban_worktrees::ESCAPE),
        format!("`{}/`", caliban_worktrees::EXTRAS),
    ] {
        assert!(guide.contains(&said), "{said}");
    }
}

/// A creation that is killed while it fills the worktree, as git leaves it: files missing, no index, its lock there.
async fn cut_short(lab: &Lab, repo: &Repo, name: &str) {
    let (reached, seen) = tokio::sync::oneshot::channel();
    let reached = Mutex::new(Some(reached));
    let asked = CreateRequest { setup: setup(lab, "sleep 1000", 2000), ..request(name) };
    let maker = repo.clone();
    let making = tokio::spawn(async move {
        let note = |step: Progress| {
            if step.phase == CreationPhase::Setup
                && let Some(reached) = reached.lock().unwrap().take()
            {
                reached.send(()).unwrap();
            }
        };
        maker.create(asked, &note, &token()).await.map(drop)
    });
    seen.await.unwrap();
    making.abort();
    assert!(making.await.unwrap_err().is_cancelled());
    std::fs::remove_file(lab.wt(name).join("README.md")).unwrap();
    write(&lab.wt(name).join("src/lib.rs"), "pub fn li");
    let admin = lab.repo().join(".git/worktrees").join(name);
    std::fs::rename(admin.join("index"), admin.join("index.lock")).unwrap();
}

#[tokio::test]
async fn a_making_that_was_cut_short_is_finished_by_whoever_takes_it_up() {
    let lab = Lab::new();
    let repo = lab.open().await;
    cut_short(&lab, &repo, "x").await;
    lab.write("later", "HEAD moves on meanwhile");
    lab.git(&["add", "-A"]);
    lab.git(&["commit", "-qm", "later"]);
    let base = lab.git(&["rev-parse", "HEAD~"]);

    // What is missing in it is nobody's deletion: it can neither be shown nor committed.
    let unfinished = "the worktree 'x' was never finished, and nobody has worked in it";
    assert_eq!(repo.changes(&slug("x"), &token()).await.unwrap_err().to_string(), unfinished);
    assert_eq!(repo.commit_all(&slug("x"), "m", &token()).await.unwrap_err().to_string(), unfinished);

    let made = repo.take_up(request("x"), &quiet, &token()).await.unwrap();
    assert_eq!((made.created.base.as_str(), made.created.branch.as_str()), (base.as_str(), "caliban/x"));
    assert_eq!(lab.git_at(lab.wt("x"), &["status", "--porcelain"]), "");
    assert_eq!(lab.git_at(lab.wt("x"), &["rev-parse", "HEAD"]), base);
    assert_eq!(repo.changes(&slug("x"), &token()).await.unwrap().file_count, 0);
}

#[tokio::test]
async fn a_worktree_that_is_taken_up_keeps_its_work_and_is_held() {
    let lab = Lab::new();
    let repo = lab.open().await;
    write(&make(&repo, "x").await.join("work"), "work");
    std::fs::remove_file(lab.wt("x").join("run.sh")).unwrap();
    let before = lab.traces();
    let held = repo.take_up(request("x"), &quiet, &token()).await.unwrap();
    assert_eq!(lab.git_at(lab.wt("x"), &["status", "--porcelain"]), " D run.sh\n?? work");
    assert_eq!(lab.traces(), before);
    for error in [
        repo.take_up(request("x"), &quiet, &token()).await.unwrap_err(),
        repo.remove(&slug("x"), None, &Default::default(), &token()).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Busy { .. }), "{error}");
    }
    drop(held);
    repo.take_up(request("x"), &quiet, &token()).await.unwrap();
    // One that nobody made yet is made.
    repo.take_up(request("y"), &quiet, &token()).await.unwrap();
    assert_eq!(names(&lab.repo().join(".caliban/worktrees")), ["x", "y"]);
    std::fs::remove_dir_all(lab.wt("y")).unwrap();
    std::fs::write(lab.wt("y"), "").unwrap();
    let gone = repo.take_up(request("y"), &quiet, &token()).await.unwrap_err();
    assert!(matches!(gone, Error::FilesGone { .. }), "{gone}");
}

#[tokio::test]
async fn r19_a_worktree_that_a_removal_took_is_made_again_with_all_its_work() {
    let lab = Lab::new();
    let repo = lab.open().await;
    // Whatever a removal that was cut short has left of the record.
    for (name, cut) in
        [("whole", ""), ("headless", "HEAD"), ("markerless", "HEAD caliban.json"), ("gone", "*")]
    {
        let path = make(&repo, name).await;
        let base = lab.git_at(&path, &["rev-parse", "HEAD"]);
        write(&path.join("done"), "done");
        lab.git_at(&path, &["add", "done"]);
        lab.git_at(&path, &["commit", "-qm", "done"]);
        write(&path.join("dirty"), "dirty");
        let admin = lab.repo().join(".git/worktrees").join(name);
        let kept = lab.top().join(format!("kept-{name}"));
        copy(&admin, &kept);
        repo.remove(&slug(name), None, &Default::default(), &token()).await.unwrap();
        if cut != "*" {
            copy(&kept, &admin);
            cut.split_whitespace().for_each(|file| std::fs::remove_file(admin.join(file)).unwrap());
        }
        let again = repo.take_up(request(name), &quiet, &token()).await.unwrap();
        assert_eq!(lab.git_at(&path, &["status", "--porcelain"]), "?? dirty", "{name}");
        assert_eq!(std::fs::read_to_string(path.join("dirty")).unwrap(), "dirty");
        assert_eq!(lab.git_at(&path, &["log", "--format=%s", "-1"]), "done");
        assert_eq!(lab.git_at(&path, &["branch", "--show-current"]), format!("caliban/{name}"));
        assert!(
            again.created.notes.iter().any(|note| note.starts_with("the worktree was gone")),
            "{again:?}"
        );
        if cut != "*" && !cut.contains("caliban") {
            assert_eq!(again.created.base.to_string(), base);
        }
    }
    // What is left of a removal can be removed, too.
    let path = make(&repo, "rest").await;
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::remove_file(lab.repo().join(".git/worktrees/rest/HEAD")).unwrap();
    repo.remove(&slug("rest"), None, &Default::default(), &token()).await.unwrap();
    assert!(!lab.repo().join(".git/worktrees/rest").exists());
}

#[tokio::test]
async fn r19_what_was_only_staged_is_in_a_worktree_that_is_made_again_and_nothing_older() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("done"), "done");
    lab.git_at(&path, &["add", "done"]);
    lab.git_at(&path, &["commit", "-qm", "done"]);
    let notes = |again: &Worktree| again.created.notes.clone();
    let from = |what: &str| vec![format!("the worktree was gone; it was made again from its branch{what}")];
    let take_away = || std::fs::remove_dir_all(&path).unwrap();

    write(&path.join("first"), "first");
    lab.git_at(&path, &["add", "first"]);
    take_away();
    let again = repo.take_up(request("x"), &quiet, &token()).await.unwrap();
    assert_eq!(lab.git_at(&path, &["status", "--porcelain"]), "A  first");
    assert_eq!(notes(&again), from(" and refs/caliban/rescue/x"));
    drop(again);

    // Not wanted any more, and another one is: both at the same commit.
    lab.git_at(&path, &["rm", "-qf", "first"]);
    write(&path.join("second"), "second");
    lab.git_at(&path, &["add", "second"]);
    take_away();
    let again = repo.take_up(request("x"), &quiet, &token()).await.unwrap();
    assert_eq!(lab.git_at(&path, &["status", "--porcelain"]), "A  second");
    assert_eq!(notes(&again), from(" and refs/caliban/rescue/x-2"));
    drop(again);

    // Nothing at all.
    lab.git_at(&path, &["rm", "-qf", "second"]);
    take_away();
    let again = repo.take_up(request("x"), &quiet, &token()).await.unwrap();
    assert_eq!(lab.git_at(&path, &["status", "--porcelain"]), "");
    assert_eq!(notes(&again), from(""));
    drop(again);

    // What does not belong on the branch is named, not put there.
    lab.git_at(&path, &["checkout", "-q", "--detach", "HEAD^"]);
    write(&path.join("third"), "third");
    lab.git_at(&path, &["add", "third"]);
    take_away();
    let again = repo.take_up(request("x"), &quiet, &token()).await.unwrap();
    assert_eq!(lab.git_at(&path, &["status", "--porcelain"]), "");
    assert_eq!(
        notes(&again),
        [from(""), vec!["what else it had is in refs/caliban/rescue/x-3: caliban worktrees rescue restore x-3 --as NAME".to_owned()]]
            .concat()
    );
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    assert!(std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}
