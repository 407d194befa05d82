//! What becomes of an agent's worktree: nothing in it is lost (r19, w06).

use std::path::Path;
use std::process::Command;

use caliban_contract::{PlaceSources, Places, Sweep};
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{Ending, State};
use caliban_core::names::Slug;
use caliban_core::spec::{Isolation, WorktreeSpec};
use caliban_fleet::protocol::{RespawnRequest, RmRequest};
use caliban_worktrees::{CreateRequest, GitOptions, Repo};
use tokio_util::sync::CancellationToken;

use crate::fleet::{Fleet, refused, write};

fn git(dir: &Path, args: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=x", "-c", "user.email=x@x", "-C"])
        .arg(dir)
        .args(args)
        .env("HOME", dir)
        .output()
        .unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

fn repo(fleet: &Fleet) {
    git(fleet.places.repo(), &["init", "-q"]);
    write(&fleet.places.repo().join("file"), "one\n");
    git(fleet.places.repo(), &["add", "."]);
    git(fleet.places.repo(), &["commit", "-q", "-m", "first"]);
}

/// Makes the worktree of an agent, as its worker would, and leaves work in it that is in no commit.
async fn dirty_worktree(fleet: &Fleet, id: AgentId) -> std::path::PathBuf {
    let never = CancellationToken::new();
    let repo = Repo::open(fleet.places.repo(), GitOptions::default(), &never).await.unwrap();
    let made = repo.create(CreateRequest::new(Slug::from(id)), &|_| {}, &never).await.unwrap();
    let path = made.created.path.clone();
    write(&path.join("untracked"), "work of an agent\n");
    path
}

async fn done_with_worktree(fleet: &Fleet) -> (AgentId, std::path::PathBuf) {
    let mut client = fleet.client().await;
    let mut request = fleet.request("done");
    request.spec.isolation = Isolation::Worktree(WorktreeSpec::default());
    let id = client.spawn(request).await.unwrap().id;
    fleet.until_state(&mut client, id, State::Done).await;
    let path = dirty_worktree(fleet, id).await;
    (id, path)
}

#[tokio::test]
async fn r19_rm_saves_what_is_in_no_commit_and_says_where() {
    let fleet = Fleet::new();
    repo(&fleet);
    let (id, path) = done_with_worktree(&fleet).await;
    let mut client = fleet.client().await;
    let removed = client.rm(&id.to_string(), RmRequest::default()).await.unwrap();
    assert!(!path.exists());
    let rescue = format!("refs/caliban/rescue/{id}");
    assert!(removed.work.iter().any(|line| line.contains(&rescue)), "{:?}", removed.work);
    assert_eq!(git(fleet.places.repo(), &["show", &format!("{rescue}:untracked")]), "work of an agent");
}

#[tokio::test]
async fn rm_with_keep_leaves_the_worktree() {
    let fleet = Fleet::new();
    repo(&fleet);
    let (id, path) = done_with_worktree(&fleet).await;
    let mut client = fleet.client().await;
    let removed = client.rm(&id.to_string(), RmRequest { keep: true, ..RmRequest::default() }).await.unwrap();
    assert!(path.join("untracked").exists(), "{:?}", removed.work);
}

#[tokio::test]
async fn r19_respawn_keeps_the_work_of_the_old_agent() {
    let fleet = Fleet::new();
    repo(&fleet);
    let (id, path) = done_with_worktree(&fleet).await;
    let mut client = fleet.client().await;
    let respawned = client.respawn(&id.to_string(), &RespawnRequest::default()).await.unwrap();
    assert!(!path.exists());
    let shown = git(fleet.places.repo(), &["show", &format!("refs/caliban/rescue/{id}:untracked")]);
    assert_eq!(shown, "work of an agent", "{:?}", respawned.work);
}

#[tokio::test]
async fn w06_worktrees_of_agents_that_nobody_knows_are_swept_at_the_next_start() {
    let fleet = Fleet::with(|options| options.sweep = Sweep::Remove);
    repo(&fleet);
    let (known, known_path) = done_with_worktree(&fleet).await;
    let orphan: AgentId = "0123abcd".parse().unwrap();
    let orphan_path = dirty_worktree(&fleet, orphan).await;
    let never = CancellationToken::new();
    let by_hand = Repo::open(fleet.places.repo(), GitOptions::default(), &never).await.unwrap();
    let by_hand =
        by_hand.create(CreateRequest::new(Slug::parse("by-hand").unwrap()), &|_| {}, &never).await.unwrap();
    let by_hand = by_hand.created.path.clone();
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    crate::fleet::wait_until("it is swept", || !orphan_path.exists());
    let started = std::time::Instant::now();
    while client.status().await.unwrap().found.swept == 0 {
        assert!(started.elapsed() < std::time::Duration::from_secs(60));
        tokio::task::yield_now().await;
    }
    assert_eq!(client.status().await.unwrap().found.line(), "found nothing to do, swept 1 worktree");
    assert_eq!(
        git(fleet.places.repo(), &["show", &format!("refs/caliban/rescue/{orphan}:untracked")]),
        "work of an agent"
    );
    assert!(known_path.exists() && by_hand.exists());
    assert_eq!(client.show(&known.to_string()).await.unwrap().state, State::Done);
}

#[tokio::test]
async fn r19_rm_finds_the_worktree_when_the_repository_is_bare_and_hidden() {
    let mut fleet = Fleet::new();
    repo(&fleet);
    // project/.bare and project/main.
    let project = fleet.temp.path().join("project");
    git(
        fleet.temp.path(),
        &[
            "clone",
            "-q",
            "--bare",
            fleet.places.repo().to_str().unwrap(),
            project.join(".bare").to_str().unwrap(),
        ],
    );
    let main = project.join("main");
    git(&project.join(".bare"), &["worktree", "add", "-q", main.to_str().unwrap(), "-b", "trunk"]);
    let sources = PlaceSources {
        daemon_runtime_dir: Some(fleet.places.runtime().to_owned()),
        data: fleet.temp.path().join("data"),
        ..PlaceSources::default()
    };
    fleet.places = Places::find(&main, &sources).unwrap();
    let mut client = fleet.client().await;
    let mut request = fleet.request("done");
    request.spec.cwd = main.clone();
    request.spec.isolation = Isolation::Worktree(WorktreeSpec::default());
    let id = client.spawn(request).await.unwrap().id;
    fleet.until_state(&mut client, id, State::Done).await;
    let never = CancellationToken::new();
    let repo = Repo::open(&main, GitOptions::default(), &never).await.unwrap();
    let path = {
        let made = repo.create(CreateRequest::new(Slug::from(id)), &|_| {}, &never).await.unwrap();
        made.created.path.clone()
    };
    write(&path.join("untracked"), "work of an agent\n");
    let removed = client.rm(&id.to_string(), RmRequest::default()).await.unwrap();
    assert!(!path.exists(), "{:?}", removed.work);
    let rescue = format!("refs/caliban/rescue/{id}:untracked");
    assert_eq!(git(&main, &["show", &rescue]), "work of an agent");
}

#[tokio::test]
async fn who_waits_for_one_that_is_neither_removed_nor_respawned_is_told_how_it_ended() {
    let fleet = Fleet::new();
    repo(&fleet);
    let mut client = fleet.client().await;
    let up = fleet.temp.path().join("up");
    let script = format!("sh:trap '' TERM; : > {}; while :; do sleep 0.1; done", up.display());
    let mut request = fleet.request(&script);
    request.spec.isolation = Isolation::Worktree(WorktreeSpec::default());
    let id = client.spawn(request).await.unwrap().id;
    crate::fleet::wait_until("the shell ignores TERM", || up.exists());
    let mut waiting = fleet.request("done");
    waiting.spec.after = vec![id];
    let waiting = client.spawn(waiting).await.unwrap().id;
    // Somebody holds the worktree, so it cannot be removed.
    let never = CancellationToken::new();
    let repo = Repo::open(fleet.places.repo(), GitOptions::default(), &never).await.unwrap();
    let _held = repo.create(CreateRequest::new(Slug::from(id)), &|_| {}, &never).await.unwrap();
    let (name, mut other) = (id.to_string(), fleet.client().await);
    let respawn = async {
        let order = fleet.places.agent_dir(id).join(caliban_contract::records::STOP);
        crate::fleet::until("its end is under way", || async { order.exists() }).await;
        other.respawn(&name, &RespawnRequest::default()).await
    };
    let (removed, respawned) =
        tokio::join!(client.rm(&name, RmRequest { force: true, ..RmRequest::default() }), respawn);
    assert_eq!((refused(removed).0, refused(respawned).0), ("conflict".into(), "conflict".into()));
    let row = fleet.until_state(&mut client, waiting, State::Failed).await;
    let text = format!("it was to start after {id}, which ended killed");
    assert_eq!(row.ending, Some(Ending::Error { text }));
}
