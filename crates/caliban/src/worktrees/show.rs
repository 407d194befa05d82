//! `caliban worktrees show`

use caliban_core::{inert, names::Slug};

use super::OpenRepo;
use crate::report::Result;

/// Changes that are listed.
const SHOWN_CHANGES: usize = 50;

pub(super) async fn show(
    OpenRepo { repo, cancel, out }: OpenRepo<'_>,
    name: &Slug,
    json: bool,
) -> Result<()> {
    let found = repo.inspect(name, &cancel).await?;
    if json {
        return super::json_line(&found, "created", out);
    }
    let listed = &found.listed;
    writeln!(out, "worktree   {}", listed.name)?;
    writeln!(out, "path       {}", inert::line(&listed.path.display().to_string()))?;
    writeln!(out, "branch     {}", listed.branch)?;
    writeln!(out, "base       {}", listed.base.short())?;
    let elsewhere = if found.reachable { "also on another branch" } else { "on no other branch" };
    let commits = if found.ahead == 1 { "commit" } else { "commits" };
    writeln!(out, "ahead      {} {commits}, {elsewhere}", found.ahead)?;
    writeln!(out, "made       {}", super::time(listed.created))?;
    if let Some(owner) = &listed.owner {
        writeln!(out, "for        {}", inert::line(owner))?;
    }
    let removal =
        if found.needs_rescue { "would first save work under a rescue ref" } else { "loses nothing" };
    writeln!(out, "removal    {removal}")?;
    if !found.dirty.is_empty() {
        let paths = match found.dirty.len() {
            1 => "1 path is".to_owned(),
            many => format!("{many} paths are"),
        };
        writeln!(out, "\n{paths} in no commit:")?;
        for change in found.dirty.iter().take(SHOWN_CHANGES) {
            let kind = serde_json::to_value(change.kind).ok();
            let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default();
            writeln!(out, "  {:<18} {}", kind.replace('_', " "), inert::line(&change.path))?;
        }
    }
    for note in &found.notes {
        writeln!(out, "note: {}", inert::line(note))?;
    }
    Ok(())
}
