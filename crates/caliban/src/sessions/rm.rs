//! `caliban sessions rm`

use std::{fs, io::Write};

use caliban_agent::{
    feed::Feed,
    transcript::{Transcript, TranscriptError},
};
use caliban_core::redact::Redactor;

use crate::{
    report::{Failure, Result},
    session_places::{FoundSession, Sessions},
};

pub(super) fn rm(sessions: &Sessions, ids: &[String], out: &mut dyn Write) -> Result<()> {
    // All of them are found before the first one goes.
    let found = ids.iter().map(|id| sessions.find_removable(id)).collect::<Result<Vec<_>, _>>()?;
    for session in found {
        let _held = hold(&session, "end it first, then remove it")?;
        fs::remove_dir_all(&session.directory).map_err(|error| {
            Failure::new(format!("cannot remove {}: {error}", session.directory.display()))
        })?;
        writeln!(out, "Removed session {}.", session.id)?;
    }
    Ok(())
}

/// Holds a session, so that nobody goes on with it meanwhile. Refused while somebody writes to it; a damaged transcript can
/// be held by nobody and hinders nothing.
pub(super) fn hold(session: &FoundSession, hint: &str) -> Result<Option<Transcript>> {
    match Transcript::resume(&session.directory, Redactor::default(), Feed::default()) {
        Ok((transcript, _)) => Ok(Some(transcript)),
        Err(error @ TranscriptError::Busy { .. }) => {
            Err(Failure::new(format!("session {} is at work: {error}", session.id)).hint(hint))
        }
        Err(_) => Ok(None),
    }
}
