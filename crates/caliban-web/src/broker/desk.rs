//! Access to the broker's store: one connection for reads, and one thread for writes. Messages that arrive at the same
//! time are stored in one transaction; each sender gets its response when that transaction is on the disk.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use caliban_contract::speaks_for::{Acting, acting};
use caliban_process::view;
use caliban_store::broker::{
    Broadcast, Broker, BrokerError, Enclosure, NewBroadcast, NewMessage, SentMessage, SessionId, Speaker,
};
use caliban_store::{Stamp, StoreUrl};
use http::StatusCode;
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard, mpsc, oneshot};

use crate::app::App;
use crate::error::Problem;

/// Capacity of the writer's queue. When it is full, further senders wait.
const WAITING: usize = 4096;
/// Maximum number of messages in one transaction.
const GROUP: usize = 512;
/// The interval at which the store is polled for writes of other processes.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A message, and the channel for its result.
struct Job {
    new: NewMessage,
    answer: oneshot::Sender<Result<SentMessage, BrokerError>>,
}

/// The store of this server.
pub(crate) struct Desk {
    url: Option<StoreUrl>,
    cafleet: std::path::PathBuf,
    reader: Mutex<Option<Broker>>,
    writer: mpsc::Sender<Job>,
    jobs: std::sync::Mutex<Option<mpsc::Receiver<Job>>>,
}

impl Desk {
    pub(crate) fn new(url: Option<StoreUrl>, cafleet: std::path::PathBuf) -> Self {
        let (writer, jobs) = mpsc::channel(WAITING);
        Self { url, cafleet, reader: Mutex::new(None), writer, jobs: std::sync::Mutex::new(Some(jobs)) }
    }

    /// The writer's end of the queue; taken once.
    fn take_jobs(&self) -> Option<mpsc::Receiver<Job>> {
        self.jobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }

    /// Whether the store exists. Reading does not create it.
    fn is_there(&self) -> bool {
        let Some(StoreUrl::Sqlite(file)) = &self.url else { return false };
        file.path().exists()
    }

    fn url(&self) -> Result<&StoreUrl, Problem> {
        let none = || {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_broker", "there is no message broker here")
                .hint("cafleet session create makes one")
        };
        self.url.as_ref().filter(|_| self.is_there()).ok_or_else(none)
    }

    /// The store for reading; the lock is held for one query.
    pub(crate) async fn read(&self) -> Result<Reading<'_>, Problem> {
        let url = self.url()?;
        let mut held = self.reader.lock().await;
        if held.is_none() {
            *held = Some(Broker::open(url, speaker()).await.map_err(|error| store(error.to_string()))?);
        }
        Ok(Reading(held))
    }

    /// Stores a message; returns when it is on the disk.
    pub(crate) async fn send(&self, new: NewMessage) -> Result<SentMessage, Problem> {
        self.url()?;
        let (answer, answered) = oneshot::channel();
        self.writer.send(Job { new, answer }).await.map_err(|_| store("the writer has ended".into()))?;
        let sent = answered.await.map_err(|_| store("the writer has ended".into()))?.map_err(refusal)?;
        Ok(sent)
    }

    /// Stores a message for every agent of the session.
    pub(crate) async fn broadcast(&self, new: &NewBroadcast) -> Result<Broadcast, Problem> {
        let mut reading = self.read().await?;
        let done = reading.broker()?.broadcast(new, Stamp::now()).await.map_err(refusal)?;
        drop(reading);
        Ok(done)
    }

    /// Has the stored messages typed into the panes of a session: wakes the session's deliverer, or starts one. Best
    /// effort: a message that is not typed now stays due.
    pub(crate) async fn deliver(&self, session: SessionId) {
        let (Ok(mut reading), Ok(StoreUrl::Sqlite(file))) = (self.read().await, self.url()) else { return };
        let Ok(broker) = reading.broker() else { return };
        broker.wake_deliverer(session).await;
        let Some(lock) = broker.lock_deliverer(session).await else { return };
        drop(lock);
        let _not_there = std::process::Command::new(&self.cafleet)
            .args(["--session-id", &session.to_string(), "deliver-run"])
            .env("CAFLEET_DATABASE_URL", format!("sqlite:///{}", file.path().display()))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
    }
}

/// The store with its lock held.
pub(crate) struct Reading<'d>(MutexGuard<'d, Option<Broker>>);

impl Reading<'_> {
    pub(crate) fn broker(&mut self) -> Result<&mut Broker, Problem> {
        self.0.as_mut().ok_or_else(|| store("it is closed".into()))
    }
}

/// Runs the writer, and notifies pages of changes in the store. Never returns.
pub(crate) async fn watch(app: Arc<App>) {
    let of_writer = Arc::clone(&app);
    // A thread of its own: between two statements the writer must not wait for the reads of other requests.
    let writer = std::thread::Builder::new().name("broker-writer".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // Without a runtime, dropping the queue tells each sender that the writer has ended.
        match runtime {
            Ok(runtime) => runtime.block_on(write(&of_writer)),
            Err(_) => drop(of_writer.desk.take_jobs()),
        }
    });
    if writer.is_err() {
        drop(app.desk.take_jobs());
    }
    look(&app).await;
}

async fn write(app: &App) {
    let Some(mut jobs) = app.desk.take_jobs() else { return };
    let mut broker: Option<Broker> = None;
    loop {
        let mut group = Vec::new();
        if jobs.recv_many(&mut group, GROUP).await == 0 {
            return;
        }
        let (all, waiting): (Vec<NewMessage>, Vec<_>) =
            group.into_iter().map(|job| (job.new, job.answer)).unzip();
        let answers = match (&mut broker, &app.desk.url) {
            (Some(broker), _) => broker.send_all(&all, Stamp::now()).await,
            (None, Some(url)) => match Broker::open(url, speaker()).await {
                Ok(opened) => broker.insert(opened).send_all(&all, Stamp::now()).await,
                Err(error) => Err(error.into()),
            },
            (None, None) => return,
        };
        match answers {
            Ok(answers) => {
                for (answer, waiting) in answers.into_iter().zip(waiting) {
                    // A client that has disconnected finds the message in the timeline.
                    let _gone = waiting.send(answer);
                }
            }
            // The transaction stored nothing. Each message is sent on its own, so that each sender gets its own error. The store
            // itself opens another connection where it must; a file that is gone is not made anew (r25).
            Err(_) => {
                for (new, waiting) in all.iter().zip(waiting) {
                    let answer = match (&app.desk.url, &mut broker) {
                        (_, Some(broker)) => broker.send(new, Stamp::now()).await,
                        (Some(url), none) => match Broker::open(url, speaker()).await {
                            Ok(opened) => none.insert(opened).send(new, Stamp::now()).await,
                            Err(error) => Err(error.into()),
                        },
                        (None, None) => return,
                    };
                    let _gone = waiting.send(answer);
                }
            }
        }
    }
}

/// Notifies pages when the store has changed.
async fn look(app: &App) {
    let mut before = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if !app.desk.is_there() {
            continue;
        }
        let version = match app.desk.read().await {
            Ok(mut reading) => match reading.broker() {
                Ok(broker) => broker.data_version().await.ok(),
                Err(_) => None,
            },
            Err(_) => None,
        };
        if version.is_some() && before.is_some() && version != before {
            app.hub.say("message", &json!({"session": null}));
        }
        before = version.or(before);
    }
}

/// Our identity towards the store: a person's, as far as the process ancestry shows. The server refuses to start below
/// an agent.
fn speaker() -> Speaker {
    let (view, own) = view();
    match acting(&view, own, None) {
        Acting::Person => Speaker::Anybody,
        Acting::PersonWithin(namespace) => Speaker::Within(Enclosure::of(namespace.as_str())),
        Acting::Agents(_) | Acting::Member | Acting::Nobody => Speaker::Only(Vec::new()),
    }
}

fn store(why: String) -> Problem {
    Problem::internal(format!("the broker's store cannot be used: {}", caliban_core::inert::line(&why)))
}

/// A refusal of the broker as a problem with the fitting HTTP status.
pub(crate) fn refusal(error: BrokerError) -> Problem {
    let words = caliban_core::inert::line(&error.to_string()).into_owned();
    let (status, code) = match &error {
        BrokerError::SenderNotActive(_) => (StatusCode::BAD_REQUEST, "bad_sender"),
        BrokerError::DestinationNotFound(_) | BrokerError::DestinationNotInSession(_) => {
            (StatusCode::NOT_FOUND, "bad_destination")
        }
        BrokerError::SessionNotFound(_) | BrokerError::AgentNotFound(_) => {
            (StatusCode::NOT_FOUND, "not_found")
        }
        BrokerError::NotYours { .. } => (StatusCode::FORBIDDEN, "forbidden"),
        BrokerError::IdTaken(_) | BrokerError::Ambiguous { .. } => (StatusCode::CONFLICT, "conflict"),
        BrokerError::Store(_) => return store(words),
        _ => (StatusCode::CONFLICT, "conflict"),
    };
    Problem::new(status, code, words)
}
