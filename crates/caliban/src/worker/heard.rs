//! `resume.json` goes as soon as what it says is recorded. While it is there the daemon knows that it was not heard, and
//! says it again at the next resume: nothing that was acknowledged is lost when a run ends early.

use std::path::{Path, PathBuf};

use caliban_acp::SessionHost;
use caliban_agent::{
    event::{Author, Event},
    feed::{Cursor, Entry},
};
use caliban_supervisor::records;
use tokio_util::task::AbortOnDropHandle;

/// Waits until the message of a resume is recorded.
pub(super) struct Heard {
    host: SessionHost,
    /// Where the feed stood before it was said.
    said: Cursor,
    order: PathBuf,
    _waiting: AbortOnDropHandle<()>,
}

impl Heard {
    /// To be called before anything is said to the agent.
    pub(super) fn new(host: &SessionHost, directory: &Path) -> Self {
        let (feed, order) = (host.handle().feed().clone(), directory.join(records::RESUME));
        let said = feed.end();
        let (mut cursor, path) = (said, order.clone());
        let waiting = tokio::spawn(async move {
            while let Some(entry) = feed.wait(&mut cursor).await {
                if settles(&entry) {
                    return forget(&path);
                }
            }
        });
        Self { host: host.clone(), said, order, _waiting: AbortOnDropHandle::new(waiting) }
    }

    /// At the end of a run, which may be over before anybody looked.
    pub(super) fn finish(mut self) {
        let feed = self.host.handle().feed().clone();
        while let Some(entry) = feed.next(&mut self.said) {
            if settles(&entry) {
                return forget(&self.order);
            }
        }
    }
}

/// Whether the message is recorded, or its turn is over: a hook may have refused it.
fn settles(entry: &Entry) -> bool {
    let Entry::Record(record) = entry else { return false };
    match &record.event {
        // What somebody said in an earlier run comes as queued.
        Event::Prompt { author, queued, .. } => *author == Author::User && queued.is_none(),
        Event::Queued { .. } | Event::TurnEnded { .. } => true,
        _ => false,
    }
}

fn forget(order: &Path) {
    let _gone_already = std::fs::remove_file(order);
}
