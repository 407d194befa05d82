//! What an agent changed: figures, files, and the rows of one file. Reads git directly, so no daemon is needed.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use caliban_core::inert;
use caliban_core::names::Slug;
use caliban_fleet::landing::{words, worktree_name};
use caliban_worktrees::{GitOptions, PathChange, Repo};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::error::Problem;
use crate::input::QueryString;
use crate::render::{self, PatchPage};

/// A file with more changed lines is folded at first.
const FOLDED_LINES: u64 = 1000;
/// Generated files that nobody reviews; folded at first.
const LOCK_FILES: [&str; 8] = [
    "Cargo.lock",
    "package-lock.json",
    "pnpm-lock.yaml",
    "yarn.lock",
    "poetry.lock",
    "uv.lock",
    "go.sum",
    "composer.lock",
];
/// Maximum number of rows in a page.
const PAGE: usize = 2000;
/// The largest patch of one file that is turned into rows.
const PATCH_CAP: usize = 16 * 1024 * 1024;

/// `GET …/diff`.
pub(crate) async fn diff(
    State(app): State<Arc<App>>,
    Path((repo, id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let worktree = app.agent(&repo, &id)?.0.worktree;
    let (repo, name, cancel, _guard) = open(&app, &repo, &id).await?;
    let changes = repo.changes(&name, &cancel).await.map_err(|error| refusal(words::work(&name, error)))?;
    let paths = |all: &[PathChange]| -> Vec<Value> {
        all.iter().map(|change| json!({"path": inert::line(&change.path), "kind": change.kind})).collect()
    };
    let files: Vec<Value> = changes
        .files
        .iter()
        .map(|file| {
            let lines = file.added.unwrap_or(0) + file.deleted.unwrap_or(0);
            let name = file.path.rsplit('/').next().unwrap_or_default();
            json!({
                "path": inert::line(&file.path),
                "status": file.status,
                "added": file.added,
                "deleted": file.deleted,
                "folded": lines > FOLDED_LINES || LOCK_FILES.contains(&name),
            })
        })
        .collect();
    let commits: Vec<Value> = changes
        .commits
        .iter()
        .map(|commit| {
            let at = u64::try_from(commit.time).unwrap_or(0).saturating_mul(1000);
            json!({
                "oid": commit.oid.to_string(),
                "author": inert::line(&commit.author),
                "authored_at": crate::time::text(at),
                "subject": inert::line(&commit.subject),
            })
        })
        .collect();
    let review = repo.review(&changes, &cancel).await.map_err(|error| refusal(words::work(&name, error)))?;
    let body = json!({
        "name": changes.name.to_string(),
        "branch": inert::line(&changes.branch),
        "base": changes.base.to_string(),
        "head": changes.head.as_ref().map(ToString::to_string),
        "summary": changes.summary(),
        "commits": commits,
        "commit_count": changes.commit_count,
        "files": files,
        "file_count": changes.file_count,
        "uncommitted": paths(&changes.uncommitted),
        "left": paths(&changes.left),
        "review": review,
    });
    // The tag includes the files' mtimes: an edit can leave the line counts as they were.
    let touched = worktree.map(|root| touched(&root, &changes.uncommitted)).unwrap_or_default();
    Ok(tagged(body, &touched, &headers))
}

/// Modification times and sizes of the uncommitted files.
fn touched(root: &std::path::Path, files: &[PathChange]) -> String {
    let about = |file: &PathChange| {
        let about = std::fs::symlink_metadata(root.join(&file.path)).ok()?;
        Some((about.mtime(), about.mtime_nsec(), about.len()))
    };
    files.iter().map(|file| format!("{:?};", about(file))).collect()
}

/// A file and a range of its rows.
#[derive(Debug, Deserialize)]
pub(crate) struct FilePart {
    path: String,
    from: Option<usize>,
    limit: Option<usize>,
}

/// `GET …/diff/file`.
pub(crate) async fn diff_file(
    State(app): State<Arc<App>>,
    Path((repo, id)): Path<(String, String)>,
    QueryString(part): QueryString<FilePart>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (repo, name, cancel, _guard) = open(&app, &repo, &id).await?;
    let patch = repo.patch_of(&name, &part.path, &cancel).await;
    let patch = patch.map_err(|error| refusal(words::work(&name, error)))?;
    let made = tokio::task::spawn_blocking(move || file_json(&part, &patch.bytes));
    let body = made.await.map_err(|error| Problem::internal(error.to_string()))?;
    Ok(tagged(body, "", &headers))
}

fn file_json(part: &FilePart, patch: &[u8]) -> Value {
    let is_cut = patch.len() > PATCH_CAP;
    let text = String::from_utf8_lossy(patch.get(..PATCH_CAP).unwrap_or(patch));
    let is_binary = text.lines().any(|line| line == "GIT binary patch" || line.starts_with("Binary files "));
    let (from, limit) = (part.from.unwrap_or(0), part.limit.unwrap_or(PAGE).min(PAGE));
    let window = from..from.saturating_add(limit);
    let page = if is_binary { PatchPage::default() } else { render::patch_rows(&part.path, &text, window) };
    json!({
        "path": inert::line(&part.path),
        "total": page.total,
        "first": from,
        // Only the first page carries the hunks.
        "hunks": (from == 0).then_some(page.hunks),
        "rows": page.rows,
        "binary": is_binary,
        "cut": is_cut,
    })
}

/// Opens the repo of an agent's worktree. The git commands are cancelled when the client disconnects.
async fn open(
    app: &App,
    hash: &str,
    id: &str,
) -> Result<(Repo, Slug, CancellationToken, tokio_util::sync::DropGuard), Problem> {
    let view = app.repo(hash)?;
    let (row, _) = app.agent(hash, id)?;
    let name = worktree_name(&row).map_err(refusal)?;
    let cancel = CancellationToken::new();
    let guard = cancel.clone().drop_guard();
    let base = app.options.sources.data.join("repos").join(&view.repo.hash);
    let repo = Repo::open(&view.repo.path, GitOptions::accepting(&base), &cancel).await;
    let repo = repo.map_err(|error| refusal(words::work(&name, error)))?;
    Ok((repo, name, cancel, guard))
}

fn refusal(words: caliban_fleet::refusal::Refusal) -> Problem {
    Problem { hint: words.hint, ..Problem::new(StatusCode::CONFLICT, "conflict", words.message) }
}

/// The body with its ETag, which also covers `more`; 304 if the client already has it.
fn tagged(mut body: Value, more: &str, headers: &HeaderMap) -> Response {
    let digest = Sha256::digest(format!("{body}{more}").as_bytes());
    let tag = caliban_core::hex::encode(&digest[..12]);
    let quoted = format!("\"{tag}\"");
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == quoted.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, quoted)]).into_response();
    }
    body["etag"] = tag.into();
    ([(header::ETAG, quoted)], Json(body)).into_response()
}
