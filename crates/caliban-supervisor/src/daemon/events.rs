//! `GET /v1/events`: everybody's rows, then news, as server-sent events.
//!
//! News goes through one ring for all readers. A reader that falls behind loses what the ring forgets, is told so,
//! and gets all rows anew; it never makes anybody wait (r23).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use caliban_core::ids::AgentId;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use super::{DaemonAnswer, DaemonRequest, Msg, Owner, answers};
use crate::protocol::{AgentRow, FleetEvent};

/// Events that the ring remembers.
const RING: usize = 256;
/// Events that wait for one reader beyond the ring and the socket.
const AHEAD: usize = 8;
/// How long nothing is said, at most: by writing it is seen that a reader has gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What is said then, which readers pass over.
const STILL_HERE: &[u8] = b": still here\n\n";
/// How long a reader may take nothing. After that it is sent away, and gets everything anew when it comes back.
const STALLED: Duration = Duration::from_secs(60);

pub(super) struct EventRing {
    ring: broadcast::Sender<Arc<FleetEvent>>,
}

/// What a reader starts with.
#[derive(Debug)]
pub(super) struct Subscription {
    rows: Vec<AgentRow>,
    news: broadcast::Receiver<Arc<FleetEvent>>,
}

impl EventRing {
    pub(super) fn new() -> Self {
        Self { ring: broadcast::channel(RING).0 }
    }

    pub(super) fn is_read(&self) -> bool {
        self.ring.receiver_count() > 0
    }

    pub(super) fn removed(&self, id: AgentId) {
        self.say(|| FleetEvent::Removed { id });
    }

    fn say(&self, event: impl FnOnce() -> FleetEvent) {
        if self.is_read() {
            let _nobody_left = self.ring.send(Arc::new(event()));
        }
    }
}

impl Owner {
    pub(super) fn subscribe(&mut self) -> DaemonAnswer {
        self.refresh();
        // In this order, with nothing in between: no gap and no duplicate.
        DaemonAnswer::Events(Subscription { rows: self.rows().collect(), news: self.events.ring.subscribe() })
    }

    /// Tells readers how an agent stands.
    pub(super) fn publish(&mut self, id: AgentId) {
        self.sync_slot(id);
        let Some(agent) = self.agents.get(&id).filter(|agent| agent.is_registered()) else { return };
        self.events.say(|| FleetEvent::Agent(Box::new(agent.row(&self.places, self.waits_of(id)))));
    }
}

/// Feeds one reader until it or the daemon leaves, or it has to go.
pub(super) fn feed(
    first: Subscription,
    inbox: mpsc::Sender<Msg>,
    stop: CancellationToken,
    leave: CancellationToken,
) -> mpsc::Receiver<Bytes> {
    let (to_reader, blocks) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        // The reader left, or takes nothing.
        let _left = pump(first, &inbox, &stop, &leave, &to_reader).await;
        leave.cancel();
    });
    blocks
}

struct SubscriberLeft;

async fn pump(
    first: Subscription,
    inbox: &mpsc::Sender<Msg>,
    stop: &CancellationToken,
    leave: &CancellationToken,
    reader: &mpsc::Sender<Bytes>,
) -> Result<(), SubscriberLeft> {
    let say = async |event: &FleetEvent| send(reader, leave, block(event)).await;
    let mut subscription = first;
    loop {
        for row in std::mem::take(&mut subscription.rows) {
            say(&FleetEvent::Agent(Box::new(row))).await?;
        }
        say(&FleetEvent::Ready {}).await?;
        let missed = loop {
            let news = tokio::select! {
                news = subscription.news.recv() => news,
                () = leave.cancelled() => {
                    // Who is sent away may come back at once.
                    if stop.is_cancelled() {
                        let _last_word = reader.try_send(block(&FleetEvent::Bye {}));
                    }
                    return Err(SubscriberLeft);
                }
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    send(reader, leave, Bytes::from_static(STILL_HERE)).await?;
                    continue;
                }
                () = reader.closed() => return Err(SubscriberLeft),
            };
            match news {
                Ok(event) => say(&event).await?,
                Err(RecvError::Lagged(missed)) => break missed,
                Err(RecvError::Closed) => return Err(SubscriberLeft),
            }
        };
        say(&FleetEvent::Gap { missed }).await?;
        match answers::ask(inbox, DaemonRequest::Events).await {
            Ok(DaemonAnswer::Events(anew)) => subscription = anew,
            _ => return Err(SubscriberLeft),
        }
    }
}

/// Hands on what there is to say as soon as the reader takes it.
async fn send(
    reader: &mpsc::Sender<Bytes>,
    leave: &CancellationToken,
    said: Bytes,
) -> Result<(), SubscriberLeft> {
    tokio::select! {
        sent = reader.send_timeout(said, STALLED) => sent.map_err(|_| SubscriberLeft),
        // A reader that takes nothing does not keep us.
        () = leave.cancelled() => Err(SubscriberLeft),
    }
}

/// An event in the format of server-sent events.
fn block(event: &FleetEvent) -> Bytes {
    let (name, data) = match event {
        FleetEvent::Agent(row) => ("agent", serde_json::to_string(row)),
        FleetEvent::Removed { id } => ("removed", serde_json::to_string(&serde_json::json!({ "id": id }))),
        FleetEvent::Ready {} => ("ready", Ok("{}".to_owned())),
        FleetEvent::Gap { missed } => ("gap", Ok(format!("{{\"missed\":{missed}}}"))),
        FleetEvent::Bye {} => ("bye", Ok("{}".to_owned())),
    };
    match data {
        Ok(data) => Bytes::from(format!("event: {name}\ndata: {data}\n\n")),
        Err(error) => Bytes::from(format!(": {error}\n\n")),
    }
}
