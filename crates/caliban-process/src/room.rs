//! Waiting for room: the system refuses another process or thread (EAGAIN) while there are as many as may be, which passes.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread::Builder,
    time::{Duration, Instant},
};

/// How long it is tried again, and how often.
pub const NO_ROOM: (Duration, Duration) = (Duration::from_secs(60), Duration::from_millis(100));

/// Makes a process or a thread; waits a while where the system has no room for it. Blocks.
///
/// What refuses for another reason once there was no room is told as no room: the first process of a process namespace can be
/// tried only once where a control group refuses it.
pub fn with_room<T>(mut make: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let (limit, pause) = NO_ROOM;
    let began = Instant::now();
    let mut refused = None;
    loop {
        match make() {
            Ok(made) => return Ok(made),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && began.elapsed() < limit => {
                refused = Some(error);
                std::thread::sleep(pause);
            }
            Err(error) => return Err(refused.unwrap_or(error)),
        }
    }
}

/// Starts a thread that does this; waits a while where the system has no room for another one. Blocks.
pub fn thread_with_room(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // A start that is refused drops what it was given.
    let work = Arc::new(Mutex::new(Some(work)));
    let start = || {
        let taken = work.clone();
        Builder::new().name(name.to_owned()).spawn(move || {
            let work = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(work) = work {
                work();
            }
        })
    };
    with_room(start).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_for_want_of_room_is_tried_again() {
        let mut tries = 0;
        let made = with_room(|| {
            tries += 1;
            if tries < 3 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(tries) }
        });
        assert_eq!(made.unwrap(), 3);
        let refused = with_room(|| Err::<(), _>(io::ErrorKind::NotFound.into()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_process_namespace_that_had_no_room_for_its_first_process_is_told_as_no_room() {
        let mut kinds = [io::ErrorKind::OutOfMemory, io::ErrorKind::WouldBlock].to_vec();
        let refused = with_room(|| Err::<(), _>(kinds.pop().unwrap().into()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
