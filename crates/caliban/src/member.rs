//! A screen that is a member of a broker team: `cafleet member create --coding-agent caliban`.
//!
//! Nothing is typed into its pane. Its messages come out of its mailbox into the session that the screen shows, under the
//! rules of any agent with a mailbox ([`crate::broker`]); what it is at, it says on a socket of its own.

use std::{path::Path, sync::Arc};

use caliban_acp_host::{SessionHost, Sessions, listen_state};
use caliban_contract::{
    member, places,
    sockets::{self, Bound},
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    broker::{Farewell, Identity, Postman},
    report::{Failure, Result},
};

/// A member at work. Ends with this.
pub(crate) struct Membership {
    bound: Bound,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Membership {
    /// Begins to bring mail into whatever session is opened, and to say what the sessions are at.
    pub(crate) fn begin(identity: &Identity, sessions: &Arc<Sessions>) -> Result<Self> {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let path = member::socket(&identity.database_dir(), i64::from(pid));
        let (listener, bound) = bind(&path)?;
        let mail = tokio::spawn(bring(identity.clone(), sessions.opened_ones()));
        let sessions = sessions.clone();
        let state =
            tokio::spawn(async move { listen_state(listener, sessions, env!("CARGO_PKG_VERSION")).await });
        Ok(Self { bound, _tasks: [AbortOnDropHandle::new(mail), AbortOnDropHandle::new(state)] })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.bound.remove();
    }
}

fn bind(path: &Path) -> Result<(tokio::net::UnixListener, Bound)> {
    let cannot = |why: String| Failure::new(format!("cannot listen at {}: {why}", path.display()));
    let directory = path.parent().unwrap_or(path);
    if directory.parent() == Some(&places::short_parent()) {
        places::private_dir(&places::short_parent()).map_err(|error| cannot(error.to_string()))?;
    }
    places::private_dir(directory).map_err(|error| cannot(error.to_string()))?;
    sockets::bind(path).map_err(|error| cannot(error.to_string()))
}

/// Mail goes into the session that was opened last: that is the one on the screen.
async fn bring(identity: Identity, mut opened: UnboundedReceiver<SessionHost>) {
    let mut postman: Option<Postman> = None;
    while let Some(host) = opened.recv().await {
        if let Some(mut old) = postman.take() {
            old.settle().await;
            old.finish(Farewell::Stay).await;
        }
        postman = Some(Postman::start(identity.clone(), host));
    }
}
