//! `caliban sessions fork` and `caliban sessions rewind`: the same as `/fork` and `/rewind` in a session.

use std::{io::Write, num::NonZeroUsize};

use caliban_agent::fork::points;

pub(super) use crate::commands::Files;
use crate::{
    commands::{report, take_back},
    report::{Failure, Result},
    session_places::{FoundSession, Sessions},
};

pub(super) fn fork(
    sessions: &Sessions,
    found: &FoundSession,
    before: Option<NonZeroUsize>,
    files: Files,
    json: bool,
    out: &mut dyn Write,
) -> Result<()> {
    let records = super::records(found)?;
    let points = points(&records);
    let number = match (before, files) {
        (Some(number), _) => Some(number.get()),
        (None, Files::Back) => Some(points.len()),
        (None, Files::Stay) => None,
    };
    let turn = number.map(|number| {
        let point = number.checked_sub(1).and_then(|at| points.get(at));
        point.map(|point| point.turn).ok_or_else(|| {
            Failure::usage(format!("session {} has no prompt {number}", found.id))
                .hint(report::points(&points))
        })
    });
    let repo = sessions.repo().unwrap_or_default();
    // Files are not changed under a session that is at work.
    let _held = match files {
        Files::Back => super::rm::hold(found, "end it first, or use /rewind in it")?,
        Files::Stay => None,
    };
    let forked = take_back(sessions, found, &repo, turn.transpose()?, files).map_err(Failure::new)?;
    if json {
        return crate::fleet::json_line(&forked, out);
    }
    if let Some(undone) = &forked.undone {
        writeln!(out, "{}", report::undone(undone, &repo))?;
    }
    writeln!(out, "Session {} goes on from there; {} stays as it is.", forked.id, found.id)?;
    crate::report::note(&format!("go on with it: caliban --resume {}", forked.id));
    Ok(())
}
