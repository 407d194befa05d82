//! `caliban worktrees rescue …`: work that removals saved.

use std::{io::Write, path::Path};

use caliban_core::inert;
use caliban_worktrees::{RESCUE_PREFIX, Rescue, RestoreTo, Restored};

use super::OpenRepo;
use crate::report::{Failure, Result};

/// The field with the time, in what is printed for programs.
const TIME: &str = "saved";

pub(super) async fn list(OpenRepo { repo, cancel, out }: OpenRepo<'_>, json: bool) -> Result<()> {
    let rescues = repo.rescues(&cancel).await?;
    if json {
        return super::json_line(&rescues, TIME, out);
    }
    if rescues.is_empty() {
        writeln!(out, "Nothing was saved: every worktree went without leaving work behind.")?;
        return Ok(());
    }
    let width = rescues.len().to_string().len();
    for (number, rescue) in (1..).zip(&rescues) {
        let name = inert::line(&rescue.name);
        writeln!(out, "{number:>width$}  {name}  {}  {}", super::time(rescue.saved), rescue.reference)?;
        writeln!(out, "{:width$}    {}", "", rescue.restore)?;
    }
    Ok(())
}

pub(super) async fn restore(
    OpenRepo { repo, cancel, out }: OpenRepo<'_>,
    name: &str,
    to: Option<&Path>,
    rename: Option<&str>,
) -> Result<()> {
    let target = match to {
        Some(directory) => RestoreTo::Directory(directory.to_owned()),
        None => RestoreTo::Worktree(rename.map(super::slug).transpose()?),
    };
    match repo.restore(name, target, &|_| {}, &cancel).await? {
        Restored::Directory(path) => writeln!(out, "Restored the files to {}.", path.display())?,
        Restored::Worktree(worktree) => {
            let created = &worktree.created;
            writeln!(
                out,
                "Restored worktree {} at {} on branch {}.",
                created.name,
                created.path.display(),
                created.branch
            )?;
        }
    }
    Ok(())
}

/// Removes all that are named, or none. Each is found before the first goes: numbers are those of one list.
pub(super) async fn rm(
    OpenRepo { repo, cancel, out }: OpenRepo<'_>,
    given: &[String],
    json: bool,
) -> Result<()> {
    let known = repo.rescues(&cancel).await?;
    let mut chosen: Vec<&Rescue> = Vec::new();
    for word in given {
        let Some(found) = find(&known, word) else {
            return Err(Failure::new(format!(
                "there is no rescue {}; nothing was removed",
                inert::quoted(word)
            ))
            .hint("`caliban worktrees rescue list` shows what was saved, with names and numbers"));
        };
        if !chosen.contains(&found) {
            chosen.push(found);
        }
    }
    let mut removed: Vec<Rescue> = Vec::new();
    let mut failed = None;
    for rescue in chosen {
        match repo.drop_rescue(&rescue.name, &cancel).await {
            Ok(gone) => {
                if !json {
                    say(&gone, out)?;
                }
                removed.push(gone);
            }
            Err(error) => {
                failed = Some(error.into());
                break;
            }
        }
    }
    if json {
        super::json_line(&removed, TIME, out)?;
    }
    failed.map_or(Ok(()), Err)
}

/// The rescue that a name, a ref or a number of the list means. A name is stronger: one may consist of digits.
fn find<'a>(known: &'a [Rescue], word: &str) -> Option<&'a Rescue> {
    let name = word.strip_prefix(RESCUE_PREFIX).unwrap_or(word);
    let numbered = || word.parse::<usize>().ok()?.checked_sub(1).and_then(|at| known.get(at));
    known.iter().find(|rescue| rescue.name == name).or_else(numbered)
}

/// What is gone, and how to have it back: git keeps the commit for a while.
fn say(gone: &Rescue, out: &mut dyn Write) -> std::io::Result<()> {
    let of = gone.worktree.as_ref().map_or_else(String::new, |name| format!(" of worktree {name}"));
    writeln!(out, "Removed rescue {}, saved {}{of}.", inert::line(&gone.name), super::time(gone.saved))?;
    writeln!(
        out,
        "  get it back, until git forgets it: git update-ref {} {}",
        inert::line(&gone.reference),
        gone.commit
    )
}
