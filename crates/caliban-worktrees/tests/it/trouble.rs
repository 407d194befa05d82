//! r11, r19: full disks and limits leave nothing half-made and remove nothing that was not saved.

use caliban_worktrees::{CreateRequest, Error, GitOptions, RemoveOptions};
use testkit::SmallDisk;

use crate::lab::{Lab, make, make_executable, remove, slug, token, tree, try_create, write};

/// A git whose files may have at most `bytes` bytes.
fn limited(lab: &Lab, bytes: u64) -> GitOptions {
    let script = lab.top().join(format!("git-{bytes}"));
    let text = format!("#!/bin/sh\nexec prlimit --fsize={bytes} git \"$@\"\n");
    write(&script, text);
    make_executable(&script);
    GitOptions { program: script, ..lab.options() }
}

#[tokio::test]
async fn r11_a_checkout_that_cannot_write_leaves_nothing() {
    let lab = Lab::new();
    lab.write("large", vec![b'x'; 200_000]);
    lab.git(&["add", "-A"]);
    lab.git(&["commit", "-qm", "large"]);
    let repo = caliban_worktrees::Repo::open(&lab.repo(), limited(&lab, 100_000), &token()).await.unwrap();
    let before = lab.traces();
    let error = try_create(&repo, CreateRequest::new(slug("x"))).await.unwrap_err();
    assert!(matches!(error, Error::Git { .. }), "{error}");
    assert_eq!(lab.traces(), before);
    assert_eq!(lab.git(&["worktree", "list"]).lines().count(), 1);
    make(&lab.open().await, "x").await;
}

#[tokio::test]
async fn r19_a_rescue_that_cannot_be_written_removes_nothing() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    let noise: Vec<u8> = (0..400_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    write(&path.join("large"), noise);
    let was = tree(&path);
    let tight = caliban_worktrees::Repo::open(&lab.repo(), limited(&lab, 100_000), &token()).await.unwrap();
    let before = lab.traces();
    let error = tight.remove(&slug("x"), None, &RemoveOptions::default(), &token()).await.unwrap_err();
    assert!(matches!(error, Error::Git { .. }), "{error}");
    assert_eq!((tree(&path), lab.traces()), (was, before));
    assert!(remove(&repo, "x").await.rescue.is_some(), "with room it works");
}

#[tokio::test]
async fn r11_a_full_disk_leaves_nothing_half_made() {
    let lab = Lab::new();
    lab.write("large", vec![b'x'; 1_500_000]);
    lab.git(&["add", "-A"]);
    lab.git(&["commit", "-qm", "large"]);
    let at = lab.top().join("small");
    let Some(_small) = SmallDisk::mount(&at, "4m") else { return };
    lab.git_at(lab.top(), &["clone", "-q", "--no-hardlinks", "repo", "small/repo"]);
    let repo = lab.open_at(&at.join("repo")).await;
    let listing = || {
        (lab.git_at(at.join("repo"), &["for-each-ref"]), crate::lab::names(&at.join("repo/.git/worktrees")))
    };
    let before = listing();
    make(&repo, "fits").await;
    let with_one = listing();
    let error = try_create(&repo, CreateRequest::new(slug("full"))).await.unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert!(error.hint().unwrap().contains("nothing half-made was left"));
    assert_eq!(listing(), with_one);
    assert_eq!(crate::lab::names(&at.join("repo/.caliban/worktrees")), ["fits"]);
    remove(&repo, "fits").await;
    make(&repo, "full").await;
    remove(&repo, "full").await;
    assert_eq!(listing(), before);
}

#[tokio::test]
async fn r19_what_cannot_be_read_is_not_removed() {
    use std::os::unix::fs::PermissionsExt;
    if !testkit::file_modes_count() {
        return;
    }
    let lab = Lab::new();
    let repo = lab.open().await;
    for (name, locked) in [("file", "locked"), ("directory", "work")] {
        let path = make(&repo, name).await;
        write(&path.join("work/inner"), "inner");
        write(&path.join("locked"), "locked");
        let rights = |mode| {
            std::fs::set_permissions(path.join(locked), std::fs::Permissions::from_mode(mode)).unwrap()
        };
        rights(0o000);
        let before = lab.traces();
        let error = repo.remove(&slug(name), None, &RemoveOptions::default(), &token()).await.unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{name}: {error}");
        assert_eq!(lab.traces(), before, "{name}");
        rights(0o755);
        let rescue = remove(&repo, name).await.rescue.unwrap();
        for (file, text) in [("work/inner", "inner"), ("locked", "locked")] {
            assert_eq!(lab.git(&["show", &format!("{}:{file}", rescue.commit)]), text);
        }
    }
}
