//! `caliban sessions rm`

use std::{fs, io::Write};

use caliban_agent::{feed::Feed, transcript::Transcript};
use caliban_core::redact::Redactor;

use crate::{place::Sessions, report::Failure};

pub(super) fn rm(sessions: &Sessions, ids: &[String], out: &mut dyn Write) -> Result<(), Failure> {
    // All of them are found before the first one goes.
    let found = ids.iter().map(|id| sessions.find_removable(id)).collect::<Result<Vec<_>, _>>()?;
    for session in found {
        // Whoever writes to it holds its lock.
        let held = Transcript::resume(&session.directory, Redactor::default(), Feed::default());
        if let Err(error @ caliban_agent::transcript::TranscriptError::Busy { .. }) = &held {
            return Err(Failure::new(format!("session {} is at work: {error}", session.id))
                .hint("end it first, then remove it"));
        }
        fs::remove_dir_all(&session.directory).map_err(|error| {
            Failure::new(format!("cannot remove {}: {error}", session.directory.display()))
        })?;
        writeln!(out, "Removed session {}.", session.id)?;
    }
    Ok(())
}
