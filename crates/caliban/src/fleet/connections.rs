//! Several connections to one daemon, for verbs that are carried out for many agents at once.

use std::sync::{Mutex, PoisonError};

use caliban_fleet::{Client, ClientError};

/// Connections that nobody uses at the moment.
pub(super) struct Connections(Mutex<Vec<Client>>);

impl Connections {
    /// As many as there are requests at once, to the daemon of this client.
    pub(super) fn new(client: &Client, at_once: usize) -> Self {
        Self(Mutex::new((0..at_once).map(|_| client.another()).collect()))
    }

    /// A connection that no other request uses; it is given back when its request has ended.
    pub(super) fn take(&self) -> Result<Client, ClientError> {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // There are as many as requests at once.
        free.ok_or_else(|| ClientError::Broken("no connection is free".to_owned()))
    }

    pub(super) fn give_back(&self, client: Client) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }
}
