//! The open connections, and which one is closed when there are too many. A new connection is always accepted.
//!
//! A connection is never closed while one of its requests is being answered. Of the others, the one that has been quiet
//! for the longest is closed, of the process that has the most connections. Readers of events are closed by the same
//! rule: they connect again and get every row anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Connections at once. One more, and another one is closed.
pub(super) const CONNECTIONS: usize = 512;
/// How long everybody may stay at least: a request that was just sent is read within that time.
const AT_LEAST: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Default)]
pub(super) struct Connections {
    seats: Arc<Mutex<Seats>>,
    /// Signalled when a connection changes what it does while there is one over the limit.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Seats {
    next: u64,
    taken: BTreeMap<u64, Seat>,
}

#[derive(Debug)]
struct Seat {
    peer: Option<i32>,
    doing: Doing,
    since: Instant,
    leave: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// Says nothing, or not all of it.
    Nothing,
    Asks,
    Reads,
}

/// Whether one more can come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Some,
    /// Not before then; none when all have asked something.
    NotBefore(Option<Instant>),
}

/// One connection. Dropped when it is closed.
#[derive(Debug)]
pub(super) struct Connection {
    number: u64,
    all: Connections,
    /// Cancelled when they have to go, or the daemon does.
    pub(super) leave: CancellationToken,
}

impl Connections {
    /// Registers a connection, over the limit if need be.
    pub(super) fn enter(&self, peer: Option<i32>, stop: &CancellationToken) -> Connection {
        let leave = stop.child_token();
        let mut seats = self.seats();
        let number = seats.next;
        seats.next += 1;
        let seat = Seat { peer, doing: Doing::Nothing, since: Instant::now(), leave: leave.clone() };
        seats.taken.insert(number, seat);
        Connection { number, all: self.clone(), leave }
    }

    /// Whether one more can be accepted. When there is one over the limit, another one is closed.
    pub(super) fn make_room(&self, now: Instant) -> Room {
        let mut seats = self.seats();
        if seats.taken.len() <= CONNECTIONS {
            return Room::Some;
        }
        match seats.close_one(now) {
            Ok(()) => Room::Some,
            Err(then) => Room::NotBefore(then),
        }
    }

    /// Closes one connection, if one has been quiet for long enough: there are no descriptors for more.
    pub(super) fn send_away(&self, now: Instant) {
        let _nobody_yet = self.seats().close_one(now);
    }

    /// Waits until a connection may have to be closed; for ever when there is room.
    pub(super) async fn until(&self, room: Room) {
        match room {
            Room::Some => std::future::pending().await,
            Room::NotBefore(Some(then)) => tokio::time::sleep_until(then).await,
            // A connection that got its answer may go on reading events.
            Room::NotBefore(None) => self.changed.notified().await,
        }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats {
    /// Closes the connection that has to go first; else when one may be closed, none when all have asked something.
    fn close_one(&mut self, now: Instant) -> Result<(), Option<Instant>> {
        let (number, since) = self.first_to_go().ok_or(None)?;
        if since + AT_LEAST > now {
            return Err(Some(since + AT_LEAST));
        }
        if let Some(seat) = self.taken.remove(&number) {
            seat.leave.cancel();
        }
        Ok(())
    }

    /// The connection to be closed first.
    fn first_to_go(&self) -> Option<(u64, Instant)> {
        let mut of_peer: BTreeMap<Option<i32>, usize> = BTreeMap::new();
        for seat in self.taken.values() {
            *of_peer.entry(seat.peer).or_default() += 1;
        }
        let crowd = |seat: &Seat| of_peer.get(&seat.peer).copied().unwrap_or_default();
        self.taken
            .iter()
            .filter(|(_, seat)| seat.doing != Doing::Asks)
            .min_by_key(|(_, seat)| (std::cmp::Reverse(crowd(seat)), seat.since))
            .map(|(number, seat)| (*number, seat.since))
    }
}

impl Connection {
    /// They begin to do something else.
    pub(super) fn does(&self, doing: Doing) {
        let mut seats = self.all.seats();
        if let Some(seat) = seats.taken.get_mut(&self.number) {
            (seat.doing, seat.since) = (doing, Instant::now());
        }
        if seats.taken.len() > CONNECTIONS {
            self.all.changed.notify_one();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.seats().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_was_still_for_the_longest_of_the_largest_crowd_goes_and_who_asks_stays() {
        let (all, stop) = (Connections::default(), CancellationToken::new());
        let alone = all.enter(Some(1), &stop);
        let crowd: Vec<Connection> = (1..CONNECTIONS).map(|_| all.enter(Some(2), &stop)).collect();
        crowd[0].does(Doing::Asks);
        let began = Instant::now();
        // As many as there may be: nobody goes.
        assert_eq!(all.make_room(began + AT_LEAST), Room::Some);
        assert!(crowd.iter().all(|connection| !connection.leave.is_cancelled()));
        tokio::time::advance(AT_LEAST / 2).await;
        crowd[1].does(Doing::Reads);
        let last = all.enter(Some(3), &stop);
        assert_eq!(all.make_room(Instant::now()), Room::NotBefore(Some(began + AT_LEAST)));
        assert_eq!(all.make_room(began + AT_LEAST), Room::Some);
        let gone: Vec<usize> = crowd
            .iter()
            .enumerate()
            .filter(|(_, connection)| connection.leave.is_cancelled())
            .map(|(n, _)| n)
            .collect();
        assert_eq!(gone, [2]);
        assert!(!alone.leave.is_cancelled() && !last.leave.is_cancelled());
        // When all ask, nobody goes; and who leaves makes room.
        crowd.iter().chain([&alone, &last]).for_each(|connection| connection.does(Doing::Asks));
        let more = all.enter(Some(2), &stop);
        more.does(Doing::Asks);
        assert_eq!(all.make_room(Instant::now() + AT_LEAST), Room::NotBefore(None));
        // Who has asked and reads now is seen, without anybody leaving.
        let seen = async {
            loop {
                match all.make_room(Instant::now()) {
                    Room::Some => break,
                    room => all.until(room).await,
                }
            }
        };
        let read = async {
            tokio::task::yield_now().await;
            crowd[3].does(Doing::Reads);
        };
        let (seen, ()) = tokio::join!(tokio::time::timeout(AT_LEAST * 60, seen), read);
        assert_eq!((seen, crowd[3].leave.is_cancelled()), (Ok(()), true));
        let again = all.enter(Some(2), &stop);
        again.does(Doing::Asks);
        assert_eq!(all.make_room(Instant::now() + AT_LEAST), Room::NotBefore(None));
        drop(alone);
        assert_eq!(all.make_room(Instant::now()), Room::Some);
        stop.cancel();
        assert!(last.leave.is_cancelled());
    }
}
