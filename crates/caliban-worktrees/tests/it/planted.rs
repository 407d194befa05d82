//! a06, r19: what an agent writes into the repository's configuration, attributes and grafts neither runs nor hides its work,
//! and a pipe in the place of a file stops nobody else.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use caliban_worktrees::{
    BranchFate, CommitLeft, CreateRequest, GitOptions, KeepWorktrees, LandAs, LandRequest, RemoveOptions,
    Repo,
};

use crate::lab::{Lab, make, names, remove, slug, token, try_create, write};

/// A filter that leaves a trace and says that nothing changed.
fn lying_filter(lab: &Lab) -> String {
    format!("touch '{}'; cat >/dev/null; echo 'read me'", lab.top().join("ran").display())
}

/// Has `README.md` changed to the same length, so that git must read it, under a filter that every path has.
fn filtered_change(lab: &Lab, path: &Path) {
    write(&lab.repo().join(".git/info/attributes"), "* filter=x\n");
    write(&path.join("README.md"), "READ ME\n");
}

async fn shows_and_saves_the_change(lab: &Lab, repo: &Repo) {
    let changes = repo.changes(&slug("x"), &token()).await.unwrap();
    assert_eq!(changes.files.iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["README.md"]);
    let rescue = remove(repo, "x").await.rescue.unwrap();
    assert!(!lab.top().join("ran").exists(), "nothing of the agent's ran");
    assert_eq!(lab.git(&["show", &format!("{}:README.md", rescue.commit)]), "READ ME");
}

#[tokio::test]
async fn a06_a_filter_from_an_included_file_neither_runs_nor_hides_a_change() {
    for condition in ["gitdir:**/worktrees/**", "onbranch:caliban/**"] {
        let lab = Lab::new();
        let repo = lab.open().await;
        let path = make(&repo, "x").await;
        let included = lab.top().join("evil.inc");
        lab.git(&["config", "--file", included.to_str().unwrap(), "filter.x.clean", &lying_filter(&lab)]);
        lab.git_at(&path, &["config", &format!("includeIf.{condition}.path"), included.to_str().unwrap()]);
        filtered_change(&lab, &path);
        shows_and_saves_the_change(&lab, &repo).await;
    }
}

#[tokio::test]
async fn a06_a_filter_of_the_worktrees_own_configuration_neither_runs_nor_hides_a_change() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    lab.git_at(&path, &["config", "extensions.worktreeConfig", "true"]);
    lab.git_at(&path, &["config", "--worktree", "filter.x.clean", &lying_filter(&lab)]);
    filtered_change(&lab, &path);
    shows_and_saves_the_change(&lab, &repo).await;
}

#[tokio::test]
async fn a06_any_number_of_filters_stops_nothing() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("work"), "work");
    let many: String = (0..30_000).map(|n| format!("[filter \"f{n}\"]\n\tclean = false\n")).collect();
    let config = lab.repo().join(".git/config");
    let before = std::fs::read_to_string(&config).unwrap();
    write(&config, before + &many);
    assert_eq!(repo.changes(&slug("x"), &token()).await.unwrap().file_count, 1);
    assert!(remove(&repo, "x").await.rescue.is_some());
}

#[tokio::test]
async fn r19_a_graft_does_not_make_a_branch_merged() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("work"), "work");
    lab.git_at(&path, &["add", "-A"]);
    lab.git_at(&path, &["commit", "-qm", "work"]);
    let (main, tip) = (lab.git(&["rev-parse", "main"]), lab.git(&["rev-parse", "caliban/x"]));
    let graft = format!("{main} {tip}\n");
    write(&lab.repo().join(".git/info/grafts"), &graft);
    let turn = repo.landing_turn(|| {}, &token()).await.unwrap();
    let (name, message) = (slug("x"), "land x".to_owned());
    lab.git(&["branch", "release"]);
    for (into, land_as) in [(Some("release"), LandAs::Merge), (None, LandAs::Squash)] {
        let into = into.map(str::to_owned);
        let (agent, task) = ("x".to_owned(), "the task".to_owned());
        let (name, commit, message) = (name.clone(), CommitLeft::IfAlone, Some(message.clone()));
        let request = LandRequest { name, into, land_as, commit, message, agent, task };
        let landed = repo.land(&turn, &request, &|_| {}, &token()).await.unwrap();
        assert_eq!(landed.summary, "1 file changed, 1 insertion(+), 0 deletions(-)", "{land_as:?}");
    }
    drop(turn);
    // As if nothing had landed.
    lab.git(&["reset", "-q", "--hard", &main]);
    lab.git(&["branch", "-qD", "release"]);
    let report = remove(&repo, "x").await;
    assert!(matches!(report.branch_fate, BranchFate::Kept { ahead: 1, .. }), "{:?}", report.branch_fate);
    assert_eq!(lab.git(&["rev-parse", "caliban/x"]), tip);
}

#[tokio::test]
async fn r19_a_changed_mode_is_saved_whatever_the_configuration_says_of_modes() {
    for setting in ["before", "after"] {
        let lab = Lab::new();
        if setting == "before" {
            lab.git(&["config", "core.fileMode", "false"]);
        }
        let repo = lab.open().await;
        let path = make(&repo, "x").await;
        lab.git_at(&path, &["config", "core.fileMode", "false"]);
        std::fs::set_permissions(path.join("README.md"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let rescue = remove(&repo, "x").await.rescue.unwrap();
        let saved = lab.git(&["ls-tree", rescue.commit.as_str(), "README.md"]);
        assert!(saved.starts_with("100755 "), "{setting}: {saved}");
    }
}

#[tokio::test]
async fn r05_a_pipe_in_the_place_of_a_file_stops_neither_its_own_removal_nor_others() {
    let lab = Lab::new();
    let quick = GitOptions { patience: Duration::from_millis(750), ..lab.options() };
    let repo = Repo::open(&lab.repo(), quick, &token()).await.unwrap();
    let path = make(&repo, "x").await;
    make(&repo, "other").await;
    std::fs::remove_file(path.join(".gitignore")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path.join(".gitignore"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    write(&path.join("work"), "work");
    let error = repo.changes(&slug("x"), &token()).await.unwrap_err();
    assert!(error.to_string().contains("made no progress"), "{error}");
    assert!(error.hint().unwrap().contains(".gitignore"));
    let (x, other, options, cancel) = (slug("x"), slug("other"), RemoveOptions::default(), token());
    let (mine, others) =
        tokio::join!(repo.remove(&x, None, &options, &cancel), repo.remove(&other, None, &options, &cancel));
    others.unwrap();
    let rescue = mine.unwrap().rescue.unwrap();
    assert_eq!(lab.git(&["show", &format!("{}:work", rescue.commit)]), "work");
    assert!(!path.exists());
}

#[tokio::test]
async fn a07_nothing_is_written_through_a_link_in_the_place_of_the_marker_or_the_exclude_file() {
    let lab = Lab::new();
    let repo = lab.open().await;
    make(&repo, "x").await;
    let victim = lab.home().join(".bashrc");
    write(&victim, "untouched\n");
    let admin = lab.repo().join(".git/worktrees/x");
    symlink(&victim, admin.join("caliban.json.new")).unwrap();
    let keep = RemoveOptions { keep: KeepWorktrees::All, ..RemoveOptions::default() };
    repo.remove(&slug("x"), None, &keep, &token()).await.unwrap();
    let exclude = lab.repo().join(".git/info/exclude");
    std::fs::remove_file(&exclude).unwrap();
    symlink(&victim, &exclude).unwrap();
    try_create(&repo, CreateRequest::new(slug("y"))).await.unwrap_err();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched\n");
    std::fs::remove_file(&exclude).unwrap();
    make(&repo, "y").await;
    let left = |name: &String| name.starts_with("caliban.json-");
    assert!(!names(&lab.repo().join(".git/worktrees/y")).iter().any(left));
}
