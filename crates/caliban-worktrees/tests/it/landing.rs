//! What an agent did, and whether it can be merged.

use caliban_worktrees::{ChangeKind, Error, FileChange, MergeKind, PathChange};

use crate::lab::{Lab, make, names, slug, token, write};

fn file(path: &str, status: char, added: u64, deleted: u64) -> FileChange {
    FileChange { path: path.into(), status, added: Some(added), deleted: Some(deleted) }
}

#[tokio::test]
async fn changes_are_committed_and_uncommitted_work_against_the_base() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("src/lib.rs"), "pub fn lib() {}\npub fn more() {}\n");
    lab.git_at(&path, &["commit", "-qam", "more"]);
    write(&path.join("src/new.rs"), "new\n");
    lab.git_at(&path, &["add", "-A"]);
    lab.git_at(&path, &["commit", "-qm", "new \u{e9}"]);
    write(&path.join("README.md"), "changed\n");
    write(&path.join("loose"), "a\nb\n");
    write(&path.join("bin"), [0u8, 1, 2]);
    std::fs::remove_file(path.join("docs/guide.md")).unwrap();
    // What the main tree does meanwhile is no change of the worktree.
    lab.write("later", "later");
    lab.git(&["add", "-A"]);
    lab.git(&["commit", "-qm", "later"]);
    let before = names(&lab.repo().join(".git"));
    let changes = repo.changes(&slug("x"), &token()).await.unwrap();
    assert_eq!(
        changes.files,
        [
            file("README.md", 'M', 1, 1),
            FileChange { path: "bin".into(), status: 'A', added: None, deleted: None },
            file("docs/guide.md", 'D', 0, 1),
            file("loose", 'A', 2, 0),
            file("src/lib.rs", 'M', 1, 0),
            file("src/new.rs", 'A', 1, 0),
        ]
    );
    assert_eq!(changes.summary(), "6 files changed, 5 insertions(+), 2 deletions(-)");
    assert_eq!(changes.stat()[..2], ["M README.md +1 -1", "A bin binary"]);
    let subjects: Vec<_> = changes.commits.iter().map(|c| (c.subject.as_str(), c.author.as_str())).collect();
    assert_eq!(subjects, [("new \u{e9}", "Agent"), ("more", "Agent")]);
    assert_eq!((changes.commit_count, changes.file_count, changes.branch.as_str()), (2, 6, "caliban/x"));
    let change = |path: &str, kind| PathChange { path: path.into(), kind };
    assert_eq!(
        changes.uncommitted,
        [
            change("README.md", ChangeKind::Modified),
            change("bin", ChangeKind::Untracked),
            change("docs/guide.md", ChangeKind::Deleted),
            change("loose", ChangeKind::Untracked),
        ]
    );
    let patch = repo.patch(&slug("x"), &token()).await.unwrap();
    assert!(!patch.is_long());
    assert!(patch.text().contains("+pub fn more() {}"), "{}", patch.text());
    lab.git(&["checkout", "-q", "-b", "try", changes.base.as_str()]);
    write(&lab.top().join("p"), &patch.bytes);
    lab.git(&["apply", "../p"]);
    for file in ["loose", "bin", "README.md", "src/lib.rs"] {
        let bytes = |at: std::path::PathBuf| std::fs::read(at.join(file)).unwrap();
        assert_eq!(bytes(lab.repo()), bytes(lab.wt("x")), "the patch applies, {file} too");
    }
    assert_eq!(names(&lab.repo().join(".git")), before, "looking leaves nothing");
    serde_json::to_string(&changes).unwrap();
}

#[tokio::test]
async fn nothing_done_is_no_change() {
    let lab = Lab::new();
    let repo = lab.open().await;
    make(&repo, "x").await;
    let changes = repo.changes(&slug("x"), &token()).await.unwrap();
    assert_eq!((changes.files, changes.commits, changes.uncommitted), (vec![], vec![], vec![]));
    assert_eq!(repo.patch(&slug("x"), &token()).await.unwrap().bytes, b"");
}

#[tokio::test]
async fn a_merge_is_foretold_without_touching_anything() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    let kind = async || repo.merge_preview(&slug("x"), None, &token()).await.unwrap().merge;
    assert_eq!(kind().await, MergeKind::UpToDate);
    write(&path.join("src/lib.rs"), "theirs\n");
    lab.git_at(&path, &["commit", "-qam", "theirs"]);
    assert_eq!(kind().await, MergeKind::FastForward);
    lab.write("docs/guide.md", "other\n");
    lab.git(&["commit", "-qam", "other file"]);
    assert_eq!(kind().await, MergeKind::Clean);
    lab.write("src/lib.rs", "ours\n");
    lab.git(&["commit", "-qam", "same file"]);
    let before = (lab.traces(), lab.git(&["count-objects"]), names(&lab.repo().join(".git")));
    let preview = repo.merge_preview(&slug("x"), None, &token()).await.unwrap();
    assert_eq!((preview.merge, preview.conflicts), (MergeKind::Conflicts, vec!["src/lib.rs".to_owned()]));
    assert_eq!(
        preview.messages,
        ["Auto-merging src/lib.rs", "CONFLICT (content): Merge conflict in src/lib.rs"]
    );
    let after = (lab.traces(), lab.git(&["count-objects"]), names(&lab.repo().join(".git")));
    assert_eq!(after, before);
    let older = repo.merge_preview(&slug("x"), Some("main~1"), &token()).await.unwrap();
    assert_eq!(older.merge, MergeKind::Clean);
    let error = repo.merge_preview(&slug("x"), Some("--all"), &token()).await.unwrap_err();
    assert!(matches!(error, Error::UnknownRevision { .. }), "{error}");
}
