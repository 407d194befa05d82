//! The daemon's socket, and the lock that says where it is. Checked on every tick: a socket that was removed (by a
//! logout or a tmp cleaner) is bound again, in its own directory or, where that cannot be made, in the refuge.

use tokio::net::UnixListener;
use tokio::sync::mpsc;

use super::Owner;
use crate::lock::HeldLock;
use crate::places::Places;
use crate::sockets::{self, Bound};

/// The socket, the lock, and the way to the server.
pub(super) struct Listener {
    /// The lock for life, and what it says of us.
    held: HeldLock,
    who: String,
    /// Where we were told to listen.
    home: Places,
    bound: Bound,
    server: mpsc::Sender<(UnixListener, Bound)>,
    /// The last failure, so that it is logged once.
    trouble: Option<String>,
}

impl Listener {
    /// Listens for the first time. Whoever calls this holds the lock, so what is in place is stale.
    pub(super) fn open(
        places: &Places,
        held: HeldLock,
        who: &str,
    ) -> Result<(Self, mpsc::Receiver<(UnixListener, Bound)>), String> {
        let socket = places.socket();
        let (listener, bound) =
            sockets::bind(&socket).map_err(|error| format!("{}: {error}", socket.display()))?;
        // As many as there can be between two looks of the server.
        let (server, listeners) = mpsc::channel(1);
        let (who, home) = (who.to_owned(), places.clone());
        let mut own = Self { held, who, home, bound: bound.clone(), server, trouble: None };
        own.say(&socket)?;
        own.server.try_send((listener, bound)).map_err(|_| "the server is gone".to_owned())?;
        Ok((own, listeners))
    }

    /// The lock, at the end.
    pub(super) fn let_go(self) -> HeldLock {
        self.held
    }

    fn say(&mut self, socket: &std::path::Path) -> Result<(), String> {
        let lock = self.home.daemon_lock();
        self.held.say(&self.who, Some(socket)).map_err(|error| format!("{}: {error}", lock.display()))
    }

    /// Listens again if the socket is gone; the places of the fleet from then on.
    fn again(&mut self) -> Option<Places> {
        if self.bound.is_there() {
            return None;
        }
        // The last one has not been taken yet.
        let to_server = self.server.clone();
        let slot = to_server.try_reserve().ok()?;
        match self.bind_again() {
            Ok((listener, places)) => {
                tracing::warn!(
                    "{} was taken away; listening at {}",
                    self.home.socket().display(),
                    places.socket().display()
                );
                slot.send((listener, self.bound.clone()));
                self.trouble = None;
                Some(places)
            }
            Err(text) => {
                if self.trouble.as_ref() != Some(&text) {
                    tracing::error!("the socket was taken away and cannot be made again: {text}");
                }
                self.trouble = Some(text);
                None
            }
        }
    }

    fn bind_again(&mut self) -> Result<(UnixListener, Places), String> {
        let refuge = self.home.refuge();
        let mut why = Vec::new();
        for places in [self.home.clone(), refuge] {
            let socket = places.socket();
            // What somebody else has put there, perhaps a daemon with other data, is left alone.
            let is_theirs = places.runtime() == self.home.runtime() && socket.symlink_metadata().is_ok();
            let bound = if is_theirs {
                Err("something else is there".to_owned())
            } else {
                places
                    .prepare()
                    .map_err(|error| error.to_string())
                    .and_then(|()| sockets::bind(&socket).map_err(|error| error.to_string()))
            };
            match bound {
                Ok((listener, bound)) => {
                    self.say(&socket)?;
                    self.bound = bound;
                    return Ok((listener, places));
                }
                Err(text) => why.push(format!("{}: {text}", socket.display())),
            }
        }
        Err(why.join("; "))
    }
}

impl Owner {
    pub(super) fn keep_listening(&mut self) {
        if let Some(places) = self.listener.as_mut().and_then(Listener::again) {
            self.places = places;
        }
    }
}
