//! `caliban agents diff`: everything that an agent changed against its recorded base, committed or not.

use std::{
    io::{IsTerminal as _, Write},
    path::Path,
};

use anstyle::{AnsiColor, Style};
use caliban_core::inert;
use caliban_fleet::landing::{
    self,
    words::{self, listed},
};
use caliban_worktrees::{Changes, GitOptions, Patch, PathChange, Repo};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{Fleet, json, json_line, say};
use crate::{
    cli::fleet::DiffArgs,
    report::{Code, Failure, Result},
};

/// The longest bar of a file's changes.
const BAR: u64 = 40;

/// The line before the content of a binary file, which nobody reads.
const BINARY: &str = "GIT binary patch";

/// What is shown; text and JSON come from it alike.
#[derive(Debug, Serialize)]
struct Diff {
    #[serde(flatten)]
    changes: Changes,
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    /// Whether the patch goes on beyond what is shown here.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_is_cut: Option<bool>,
}

pub(super) async fn diff(fleet: &Fleet<'_>, args: &DiffArgs, out: &mut dyn Write) -> Result<Code> {
    let agent = fleet.client().await?.show(&args.agent.id).await?;
    let name = landing::worktree_name(&agent)?;
    let cancel = CancellationToken::new();
    let worded_work = |error| Failure::from(words::work(&name, error));
    let repo = Repo::open(fleet.places().repo(), GitOptions::accepting(fleet.places().base()), &cancel)
        .await
        .map_err(worded_work)?;
    if args.json || args.stat {
        let changes = repo.changes(&name, &cancel).await.map_err(worded_work)?;
        say_if_files_are_gone(&repo.path_of(&name));
        say_what_is_left(&changes.left);
        let patch = match args.stat {
            true => None,
            false => Some(repo.patch(&name, &cancel).await.map_err(worded_work)?),
        };
        patch.as_ref().inspect(|patch| say_if_cut(patch));
        let diff = Diff {
            summary: changes.summary(),
            changes,
            patch_is_cut: patch.as_ref().map(Patch::is_long),
            patch: patch.map(|patch| patch.text().into_owned()),
        };
        if args.json {
            let told = json::with_instants(&diff, "time", "authored_at").map_err(std::io::Error::from)?;
            json_line(&told, out)?
        } else {
            stat(&diff, out)?
        }
        return Ok(Code::Done);
    }
    let patch = repo.patch(&name, &cancel).await.map_err(worded_work)?;
    say_if_files_are_gone(&repo.path_of(&name));
    say_what_is_left(&patch.left);
    if patch.bytes.is_empty() {
        say("no changes");
    }
    // For a program as it is, so that `git apply` takes it, and not through `out`, which takes escapes away.
    let mut stdout = std::io::stdout();
    if !stdout.is_terminal() {
        stdout.write_all(&patch.bytes)?;
        stdout.flush()?;
        return Ok(Code::Done);
    }
    say_if_cut(&patch);
    show(&patch.text(), out)?;
    Ok(Code::Done)
}

fn say_if_files_are_gone(worktree: &Path) {
    if worktree.symlink_metadata().is_err() {
        say(&words::files_are_gone(worktree));
    }
}

fn say_if_cut(patch: &Patch) {
    if patch.is_long() {
        say(&format!("the patch is cut at {} bytes; --stat shows all files", caliban_worktrees::PATCH_CAP));
    }
}

/// The same that a merge leaves.
fn say_what_is_left(left: &[PathChange]) {
    if !left.is_empty() {
        let paths: Vec<&str> = left.iter().map(|change| change.path.as_str()).collect();
        say(&format!("left out, because no commit is meant to have it: {}", listed(&paths)));
    }
}

/// For a person: in colours and inert.
fn show(patch: &str, out: &mut dyn Write) -> std::io::Result<()> {
    let mut in_binary = false;
    for line in patch.lines() {
        in_binary = (in_binary || line == BINARY) && !line.starts_with("diff --git ");
        if in_binary && line != BINARY {
            continue;
        }
        let style = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => Style::new().bold(),
            [b'+', ..] => AnsiColor::Green.on_default(),
            [b'-', ..] => AnsiColor::Red.on_default(),
            [b'@', b'@', ..] => AnsiColor::Cyan.on_default(),
            [b' ', ..] => Style::new(),
            _ => Style::new().bold(),
        };
        writeln!(out, "{style}{}{style:#}", inert::block(line))?;
    }
    Ok(())
}

fn stat(diff: &Diff, out: &mut dyn Write) -> Result<()> {
    let changes = &diff.changes;
    for commit in &changes.commits {
        writeln!(out, "{}  {}", commit.oid.short(), inert::line(&commit.subject))?;
    }
    if !changes.commits.is_empty() {
        writeln!(out)?;
    }
    let width = changes.files.iter().map(|file| inert::line(&file.path).chars().count()).max().unwrap_or(0);
    let most = changes.files.iter().filter_map(|file| Some(file.added? + file.deleted?)).max().unwrap_or(0);
    for file in &changes.files {
        let path = inert::line(&file.path);
        let bar = match (file.added, file.deleted) {
            (Some(added), Some(deleted)) => {
                let scaled = |count: u64| {
                    let full = if most > BAR { (count * BAR).div_ceil(most) } else { count };
                    usize::try_from(full).unwrap_or(0)
                };
                let (plus, minus) = ("+".repeat(scaled(added)), "-".repeat(scaled(deleted)));
                format!("{:>5} {plus}{minus}", added + deleted)
            }
            _ => "  binary".to_owned(),
        };
        writeln!(out, "{} {path:<width$} |{bar}", file.status)?;
    }
    writeln!(out, "{}", diff.summary)?;
    match changes.uncommitted.len() {
        0 => {}
        1 => writeln!(out, "1 path is not committed")?,
        more => writeln!(out, "{more} paths are not committed")?,
    }
    Ok(())
}
