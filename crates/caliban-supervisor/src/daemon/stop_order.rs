//! `stop.json` in an agent's directory: the order to end a run, durable before the first signal.
//!
//! It makes a kill final without the registry. On a full disk, or while another process holds the registry, the next daemon
//! finds the order and ends the run or does not start it. So its room is taken when the agent is spawned.

use std::io;
use std::path::Path;

use crate::records::{self, STOP_ROOM, StopOrder};

/// Writes an order; it is on the disk when this returns.
pub(super) fn write(dir: &Path, order: &StopOrder) -> io::Result<()> {
    STOP_ROOM.write_durably(dir, order)
}

/// The order to end a run, if there is one. The registry may know the run by one of its other names.
pub(super) fn read(dir: &Path, nonce: &str) -> Option<StopOrder> {
    records::read::<StopOrder>(dir, records::STOP).filter(|order| order.is_for(nonce))
}

/// Says in an agent's directory that it was removed. Durable when this returns, and needs no room.
pub(super) fn mark_removed(dir: &Path) -> io::Result<()> {
    let before = records::read::<StopOrder>(dir, records::STOP).unwrap_or_default();
    write(dir, &StopOrder { removed: true, ..before })
}

/// Whether an agent's directory says that it was removed.
pub(super) fn is_removed(dir: &Path) -> bool {
    records::read::<StopOrder>(dir, records::STOP).is_some_and(|order| order.removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(nonce: &str, others: &[&str]) -> StopOrder {
        let others = others.iter().map(|other| (*other).to_owned()).collect();
        StopOrder { nonce: nonce.to_owned(), others, grace_ms: 5, removed: false, timed_out_ms: None }
    }

    #[test]
    fn an_order_is_for_one_run_by_all_its_names() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &order("2", &["1"])).unwrap();
        assert_eq!(read(dir.path(), "2"), Some(order("2", &["1"])));
        assert_eq!(read(dir.path(), "1"), Some(order("2", &["1"])));
        assert_eq!(read(dir.path(), "3"), None);
        write(dir.path(), &order("3", &[])).unwrap();
        assert_eq!((read(dir.path(), "3"), read(dir.path(), "1")), (Some(order("3", &[])), None));
        assert!(write(&dir.path().join("gone"), &order("1", &[])).is_err());
        assert!(!is_removed(dir.path()));
        mark_removed(dir.path()).unwrap();
        assert!(is_removed(dir.path()) && read(dir.path(), "3").is_some());
    }

    #[test]
    fn an_agent_without_an_order_can_be_marked_as_removed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_removed(dir.path()));
        mark_removed(dir.path()).unwrap();
        assert!(is_removed(dir.path()));
    }
}
