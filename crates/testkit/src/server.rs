//! The model server: HTTP on loopback, answers by a script, a record of every request.
//!
//! Owns the thread with the sockets, and the record. Adds no delay of its own: no sleeps but the script's,
//! `TCP_NODELAY`, everything that is ready in one write.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

use caliban_providers::script::{Script, ScriptState, ScriptStep};
use hyper_util::rt::TokioIo;
use tokio::sync::{oneshot, watch};

use crate::request::{Recorded, RequestOutcome};
use crate::wait::LIMIT;
use crate::wire::Protocol;

/// The key in [`ModelServer::envs`] if none is required.
const ANY_KEY: &str = "test-key";
/// The model in the list if no models are given.
const ANY_MODEL: &str = "test-model";

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// A running model server. Stops when dropped.
#[derive(Debug)]
pub struct ModelServer {
    shared: Arc<ServerShared>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A model server about to be started.
#[derive(Debug)]
pub struct ServerBuilder {
    script: Script,
    settings: ScriptServerSettings,
    port: u16,
}

/// What the server requires of requests.
#[derive(Debug, Default)]
pub(crate) struct ScriptServerSettings {
    pub(crate) key: Option<String>,
    pub(crate) models: Option<Vec<String>>,
    pub(crate) frame_size: Option<usize>,
    pub(crate) rules: Rules,
    pub(crate) keep: KeptRequests,
    pub(crate) chooser: Option<Chooser>,
}

/// A function that answers instead of a script. It is given the body of the request, and may take its time.
pub(crate) struct Chooser(pub(crate) Box<dyn Fn(&serde_json::Value) -> ScriptStep + Send + Sync>);

impl std::fmt::Debug for Chooser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Chooser")
    }
}

/// Whether to refuse requests that the real services would refuse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Yes, with a 400 in the protocol's format.
    #[default]
    Held,
    /// No.
    Ignored,
}

/// Which requests are recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum KeptRequests {
    #[default]
    All,
    Nothing,
}

impl ServerBuilder {
    /// Only this key is accepted; any other gets the protocol's own error (401; Gemini: 400).
    pub fn require_key(mut self, key: impl Into<String>) -> Self {
        self.settings.key = Some(key.into());
        self
    }

    /// Only these models are known; any other gets the protocol's own error (404; Responses: 400).
    pub fn known_models<M: Into<String>>(mut self, models: impl IntoIterator<Item = M>) -> Self {
        self.settings.models = Some(models.into_iter().map(Into::into).collect());
        self
    }

    /// Splits streams into network writes of this many bytes, so that events are torn apart.
    pub fn frames_of(mut self, bytes: usize) -> Self {
        self.settings.frame_size = Some(bytes.max(1));
        self
    }

    /// Also answers requests that the real services would refuse (a tool call without its result, an empty text …).
    pub fn without_rules(mut self) -> Self {
        self.settings.rules = Rules::Ignored;
        self
    }

    /// Records no requests: for a server that runs for a long time.
    pub fn without_record(mut self) -> Self {
        self.settings.keep = KeptRequests::Nothing;
        self
    }

    /// Asks this function for each answer, and not the script: for a model that looks at what became of its calls. No other
    /// request is answered meanwhile.
    pub fn answered_by(
        mut self,
        choose: impl Fn(&serde_json::Value) -> ScriptStep + Send + Sync + 'static,
    ) -> Self {
        self.settings.chooser = Some(Chooser(Box::new(choose)));
        self
    }

    /// Listens on this port instead of a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Starts it.
    #[track_caller]
    pub fn start(self) -> ModelServer {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))
            .unwrap_or_else(|e| panic!("the model server cannot listen on port {}: {e}", self.port));
        // Hundreds of agents may connect at once; std's backlog is 128.
        rustix::net::listen(&listener, BACKLOG).expect("cannot make the listener's queue longer");
        listener.set_nonblocking(true).expect("cannot make the listener non-blocking");
        let address = listener.local_addr().expect("the listener has an address");
        let shared = Arc::new(ServerShared {
            settings: self.settings,
            start: Instant::now(),
            record: Mutex::new(ServerRecord { script: self.script, ..ServerRecord::default() }),
            changed: Condvar::new(),
            held: watch::Sender::new(false),
        });
        let (stop, stopped) = oneshot::channel();
        let served = shared.clone();
        let thread = std::thread::Builder::new()
            .name("model-server".to_owned())
            .spawn(move || serve(listener, served, stopped))
            .expect("cannot start the server's thread");
        ModelServer { shared, address, stop: Some(stop), thread: Some(thread) }
    }
}

impl ModelServer {
    /// Starts a server on a free port that accepts any key and any model.
    #[track_caller]
    pub fn start(script: Script) -> Self {
        Self::builder(script).start()
    }

    /// A server whose requirements can still be set.
    pub fn builder(script: Script) -> ServerBuilder {
        ServerBuilder { script, settings: ScriptServerSettings::default(), port: 0 }
    }

    /// `http://127.0.0.1:PORT`, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The variables that point a program at this server.
    pub fn envs(&self, protocol: Protocol) -> Vec<(&'static str, String)> {
        let key = self.shared.settings.key.clone().unwrap_or_else(|| ANY_KEY.to_owned());
        match protocol {
            Protocol::Anthropic => vec![("ANTHROPIC_BASE_URL", self.url()), ("ANTHROPIC_API_KEY", key)],
            Protocol::Responses | Protocol::Chat => {
                vec![("OPENAI_BASE_URL", format!("{}/v1", self.url())), ("OPENAI_API_KEY", key)]
            }
            Protocol::Gemini => vec![("GOOGLE_GEMINI_BASE_URL", self.url()), ("GEMINI_API_KEY", key)],
            Protocol::Ollama => vec![("OLLAMA_HOST", self.url())],
        }
    }

    /// The arguments that choose the protocol's provider and a model: `--provider anthropic --model …`.
    pub fn args(&self, protocol: Protocol) -> [String; 4] {
        let model = self.shared.settings.models().remove(0);
        ["--provider".to_owned(), protocol.provider().to_owned(), "--model".to_owned(), model]
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.lock().requests.clone()
    }

    /// The requests to the model.
    pub fn model_requests(&self) -> Vec<Recorded> {
        self.requests().into_iter().filter(|request| request.protocol.is_some()).collect()
    }

    /// Waits until there have been `n` requests to the model, and returns them.
    #[track_caller]
    pub fn wait_for_requests(&self, n: usize) -> Vec<Recorded> {
        self.shared.wait(&format!("{n} requests to the model"), |record| record.asked, n);
        self.model_requests()
    }

    /// Waits until `n` clients have disconnected before their answer was complete.
    #[track_caller]
    pub fn wait_for_hangups(&self, n: usize) {
        self.shared.wait(&format!("{n} clients that went away"), |record| record.hangups, n);
    }

    /// Accepts and records requests without an answer until [`ModelServer::release`].
    pub fn hold(&self) {
        self.shared.held.send_replace(true);
    }

    /// Answers all held requests.
    pub fn release(&self) {
        self.shared.held.send_replace(false);
    }

    /// Continues with another script, from its first step.
    pub fn set_script(&self, script: Script) {
        let mut record = self.shared.lock();
        record.script = script;
        record.state = ScriptState::default();
        record.reached.clear();
    }

    /// Panics if a request matched no step or was refused by the protocol's rules, or if a step was never reached.
    #[track_caller]
    pub fn assert_drained(&self) {
        let record = self.shared.lock();
        let strays: Vec<String> = record
            .requests
            .iter()
            .enumerate()
            .filter_map(|(number, request)| match &request.outcome {
                RequestOutcome::Unmatched(reason) | RequestOutcome::Rejected(reason) => {
                    Some(format!("request {number} ({}): {reason}", request.path))
                }
                RequestOutcome::Answered | RequestOutcome::Failed | RequestOutcome::Other => None,
            })
            .collect();
        let unreached = record.unreached();
        drop(record);
        assert!(strays.is_empty(), "requests without an answer of the script:\n{}", strays.join("\n"));
        assert!(unreached.is_empty(), "steps that no request reached:\n{}", unreached.join("\n"));
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread may have panicked.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl ScriptServerSettings {
    pub(crate) fn models(&self) -> Vec<String> {
        self.models.clone().filter(|models| !models.is_empty()).unwrap_or_else(|| vec![ANY_MODEL.to_owned()])
    }
}

/// State shared by the connections and the test.
#[derive(Debug)]
pub(crate) struct ServerShared {
    pub(crate) settings: ScriptServerSettings,
    pub(crate) start: Instant,
    record: Mutex<ServerRecord>,
    changed: Condvar,
    pub(crate) held: watch::Sender<bool>,
}

/// The state of the script, and the requests so far.
#[derive(Debug, Default)]
pub(crate) struct ServerRecord {
    pub(crate) script: Script,
    pub(crate) state: ScriptState,
    pub(crate) requests: Vec<Recorded>,
    /// The number of requests to the model.
    pub(crate) asked: usize,
    /// Each step that was used and is not repeated, without its fault.
    pub(crate) reached: Vec<ScriptStep>,
    hangups: usize,
}

impl ServerRecord {
    /// The steps that were never used. Of equal steps, each use counts for one.
    fn unreached(&self) -> Vec<String> {
        let mut reached = self.reached.clone();
        let mut unreached = Vec::new();
        for (number, step) in self.script.steps.iter().enumerate().filter(|(_, step)| !step.repeat) {
            let plain = ScriptStep { fault: None, ..step.clone() };
            match reached.iter().position(|one| *one == plain) {
                Some(at) => drop(reached.swap_remove(at)),
                None => unreached.push(format!("step {}: {step:?}", number + 1)),
            }
        }
        unreached
    }
}

impl ServerShared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ServerRecord> {
        self.record.lock().unwrap()
    }

    pub(crate) fn changed(&self) {
        self.changed.notify_all();
    }

    #[track_caller]
    fn wait(&self, what: &str, count: impl Fn(&ServerRecord) -> usize, wanted: usize) {
        let record = self.lock();
        let (record, _) =
            self.changed.wait_timeout_while(record, LIMIT, |record| count(record) < wanted).unwrap();
        let counted = count(&record);
        drop(record);
        assert!(counted >= wanted, "waited {} s for {what}, got {counted}", LIMIT.as_secs());
    }
}

/// Counts a client that disconnects before its answer is complete.
#[derive(Debug)]
pub(crate) struct Hangup {
    armed: Option<Arc<ServerShared>>,
}

impl Hangup {
    pub(crate) fn armed(shared: Arc<ServerShared>) -> Self {
        Self { armed: Some(shared) }
    }

    pub(crate) fn disarm(&mut self) {
        self.armed = None;
    }
}

impl Drop for Hangup {
    fn drop(&mut self) {
        if let Some(shared) = self.armed.take() {
            shared.lock().hangups += 1;
            shared.changed();
        }
    }
}

fn serve(listener: TcpListener, shared: Arc<ServerShared>, mut stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("cannot make the server's runtime");
    // All connections end with the runtime at the latest.
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("cannot register the listener");
        loop {
            let accepted = tokio::select! {
                _ = &mut stopped => return,
                accepted = listener.accept() => accepted,
            };
            // A client that disconnected before it was accepted is not a failure.
            let Ok((socket, _)) = accepted else { continue };
            let _ = socket.set_nodelay(true);
            let shared = shared.clone();
            tokio::spawn(async move {
                let service =
                    hyper::service::service_fn(move |request| crate::answer::answer(shared.clone(), request));
                let connection = hyper::server::conn::http1::Builder::new()
                    .header_read_timeout(None)
                    .serve_connection(TokioIo::new(socket), service);
                // Connections that were cut or refused end in an error here, as intended.
                let _ = connection.await;
            });
        }
    });
}
