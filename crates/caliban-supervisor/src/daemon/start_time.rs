//! `start.json` in an agent's directory: when an agent starts that was to start some time from then on (`--at +2h`).
//!
//! Such a time is kept since the boot, so that it holds whatever the clock is set to, also for the next daemon. In another boot
//! it means nothing, and the time of day counts.

use std::path::Path;

use caliban_process::{boot_id, boot_ms};

use crate::records::{self, START, StartRecord};
use crate::row::About;

/// Notes that it starts this long from now; none when it starts at a time of day. Best effort: without the record the next
/// daemon goes by the time of day.
pub(super) fn note(dir: &Path, about: &mut About, start_in_ms: Option<u64>) {
    about.start_boot_ms = start_in_ms.map(|wait| boot_ms().saturating_add(wait));
    let (Some(at), Ok(boot)) = (about.start_boot_ms, boot_id()) else { return };
    let record = StartRecord { boot, boot_ms: at, start_at_ms: about.start_at_ms };
    if let Err(error) = records::write(dir, START, &record) {
        tracing::warn!("{}: when it starts is known to this daemon only: {error}", dir.display());
    }
}

/// What an earlier daemon of this boot has noted about the time at which it starts now.
pub(super) fn recall(dir: &Path, about: &mut About) {
    let record: Option<StartRecord> = records::read(dir, START);
    let holds = |record: &StartRecord| {
        record.start_at_ms == about.start_at_ms && boot_id().is_ok_and(|boot| boot == record.boot)
    };
    about.start_boot_ms = record.filter(holds).map(|record| record.boot_ms);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r15_a_time_from_now_on_is_known_to_the_next_daemon_of_this_boot() {
        let dir = tempfile::tempdir().unwrap();
        let mut noted = About { start_at_ms: Some(5_000), ..About::default() };
        note(dir.path(), &mut noted, Some(1_000));
        let recalled = |start_at_ms| {
            let mut about = About { start_at_ms, ..About::default() };
            recall(dir.path(), &mut about);
            about.start_boot_ms
        };
        assert!(noted.start_boot_ms.is_some());
        assert_eq!(recalled(Some(5_000)), noted.start_boot_ms);
        assert_eq!(recalled(Some(6_000)), None, "it was put off to a time of day");
        let record: StartRecord = records::read(dir.path(), START).unwrap();
        records::write(dir.path(), START, &StartRecord { boot: "another".into(), ..record }).unwrap();
        assert_eq!(recalled(Some(5_000)), None, "in another boot");
    }
}
