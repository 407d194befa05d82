//! `stop.json` in an agent's directory: the order to end a run, durable before the first signal.
//!
//! It makes a kill final without the registry: on a full disk, or while another process holds the registry, the next daemon
//! finds the order and ends the run or does not start it. So the file's room is taken when the agent is spawned, and
//! an order is written in place.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::records::{self, StopOrder};

/// The room of the first order, until it is written.
const RESERVED: &str = ".stop.reserved";
/// Bytes of room. An order has a few names of 32 bytes.
const ROOM: usize = 1024;

/// Takes the room for the orders of an agent.
pub(super) fn reserve(dir: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(dir.join(RESERVED))?;
    // Not synced: file systems take the room when it is written to.
    file.write_all_at(&[b' '; ROOM], 0)
}

/// Writes an order; it is on the disk when this returns.
pub(super) fn write(dir: &Path, order: &StopOrder) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(order).map_err(io::Error::other)?;
    if bytes.len() > ROOM {
        return Err(io::Error::other("the order is too long"));
    }
    bytes.resize(ROOM, b' ');
    let put = |file: File| file.write_all_at(&bytes, 0).and_then(|()| file.sync_data());
    match OpenOptions::new().write(true).open(dir.join(records::STOP)) {
        Ok(earlier) => put(earlier),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !dir.join(RESERVED).exists() {
                reserve(dir)?;
            }
            put(OpenOptions::new().write(true).open(dir.join(RESERVED))?)?;
            fs::rename(dir.join(RESERVED), dir.join(records::STOP))?;
            File::open(dir)?.sync_all()
        }
        Err(error) => Err(error),
    }
}

/// The order to end a run, if there is one. The registry may know the run by one of its other names.
pub(super) fn read(dir: &Path, nonce: &str) -> Option<StopOrder> {
    records::read::<StopOrder>(dir, records::STOP).filter(|order| order.is_for(nonce))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(nonce: &str, others: &[&str]) -> StopOrder {
        let others = others.iter().map(|other| (*other).to_owned()).collect();
        StopOrder { nonce: nonce.to_owned(), others, grace_ms: 5 }
    }

    #[test]
    fn r11_an_order_is_written_into_the_room_that_was_taken_before() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| fs::metadata(dir.path().join(name)).ok().map(|file| (file.ino(), file.len()));
        reserve(dir.path()).unwrap();
        let room = file(RESERVED);
        assert_eq!((room.unwrap().1, file(records::STOP)), (ROOM as u64, None));
        write(dir.path(), &order("2", &["1"])).unwrap();
        assert_eq!((file(RESERVED), file(records::STOP)), (None, room));
        assert_eq!(read(dir.path(), "2"), Some(order("2", &["1"])));
        assert_eq!(read(dir.path(), "1"), Some(order("2", &["1"])));
        assert_eq!(read(dir.path(), "3"), None);
        // The next one takes the place of the first, which was longer.
        write(dir.path(), &order("3", &[])).unwrap();
        assert_eq!((read(dir.path(), "3"), read(dir.path(), "1")), (Some(order("3", &[])), None));
        assert_eq!(file(records::STOP), room);
        assert!(write(dir.path(), &order(&"n".repeat(ROOM), &[])).is_err());
        assert_eq!(read(dir.path(), "3"), Some(order("3", &[])));
    }

    #[test]
    fn an_agent_without_room_gets_some_and_one_without_a_directory_gets_an_error() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &order("1", &[])).unwrap();
        assert_eq!(read(dir.path(), "1"), Some(order("1", &[])));
        assert!(write(&dir.path().join("gone"), &order("1", &[])).is_err());
    }
}
