//! The listener on loopback: connections, what they may send, and how the gateway ends.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use caliban_agent::budget::{MachineLedger, Purse};
use caliban_core::price::Billing;
use caliban_providers::relay::Relay;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::answer_body::{AnswerBody, whole};
use crate::exchange::{self, GatewayRequest};
use crate::guard;
use crate::refusal::GatewayRefusal;
use crate::route::{Protocol, Route};
use crate::tokens::{Keys, Token};

/// The port unless somebody says otherwise.
pub const DEFAULT_PORT: u16 = 8317;
/// How long a request waits for a rate limit unless somebody says otherwise: clients wait for ten minutes, some for five.
pub const MAX_WAIT: Duration = Duration::from_secs(120);
/// The largest body; the providers take less.
const BODY_CAP: usize = 64 * 1024 * 1024;
/// The largest head.
const HEAD_CAP: usize = 64 * 1024;
/// How long a head may take.
const HEAD_LIMIT: Duration = Duration::from_secs(30);
/// How many connections there may be at once.
const CONNECTIONS: usize = 2048;
/// What goes through, for people.
const PATHS: &str = "/v1/messages, /v1/responses, /v1/chat/completions, /v1/models, \
                     /v1beta/models/MODEL:generateContent and :streamGenerateContent";
/// How long requests in flight may take when the gateway ends. Then they are cut, and count.
const LEAVING: Duration = Duration::from_secs(5);

/// Where requests of one protocol go, and what they cost.
pub struct Upstream {
    /// The way there.
    pub relay: Relay,
    /// Whether its models have a list price.
    pub billing: Billing,
}

/// Where requests go; an error says in words why they cannot.
pub struct Upstreams {
    /// Anthropic Messages.
    pub anthropic: Result<Upstream, String>,
    /// OpenAI Responses.
    pub responses: Result<Upstream, String>,
    /// OpenAI Chat Completions.
    pub chat: Result<Upstream, String>,
    /// Gemini.
    pub gemini: Result<Upstream, String>,
}

impl Upstreams {
    fn all(&self) -> impl Iterator<Item = &Upstream> {
        [&self.anthropic, &self.responses, &self.chat, &self.gemini]
            .into_iter()
            .filter_map(|upstream| upstream.as_ref().ok())
    }
}

/// What a gateway is made of.
pub struct GatewayOptions {
    /// The port; 0 takes any that is free.
    pub port: u16,
    /// How long a request waits for a rate limit.
    pub max_wait: Duration,
    /// Whose requests are taken.
    pub keys: Keys,
    /// Where they go.
    pub upstreams: Upstreams,
    /// The ledger for a token, with the limits that hold in its repo.
    pub ledger: Box<dyn Fn(&Token) -> MachineLedger + Send + Sync>,
    /// Hears what a person should know.
    pub tell: Box<dyn Fn(&str) + Send + Sync>,
}

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port is taken, or may not be used.
    #[error("cannot listen on 127.0.0.1:{port}: {source}")]
    Listen {
        /// The port.
        port: u16,
        /// Why not.
        source: io::Error,
    },
    /// The settings lead back to the gateway.
    #[error("the provider's address in the settings is the gateway's own ({0})")]
    Itself(String),
}

/// A gateway that listens.
pub struct Gateway {
    listener: TcpListener,
    gate: Arc<Gate>,
    address: SocketAddr,
}

/// What all requests share.
pub(crate) struct Gate {
    pub(crate) options: GatewayOptions,
    purses: Mutex<HashMap<String, (Purse, Arc<AtomicUsize>)>>,
    /// Requests under way; they outlive their connections until they are settled.
    exchanges: TaskTracker,
    /// Cuts them.
    pub(crate) cut: CancellationToken,
}

impl Gateway {
    /// Listens.
    pub async fn bind(options: GatewayOptions) -> Result<Self, StartError> {
        let failed = |source| StartError::Listen { port: options.port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        for upstream in options.upstreams.all() {
            let base = upstream.relay.shown_base();
            if is_own(base, address.port()) {
                return Err(StartError::Itself(base.to_owned()));
            }
        }
        let gate = Gate {
            options: GatewayOptions { port: address.port(), ..options },
            purses: Mutex::default(),
            exchanges: TaskTracker::new(),
            cut: CancellationToken::new(),
        };
        Ok(Self { listener, gate: Arc::new(gate), address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is told to stop. When this returns, every request is settled.
    pub async fn serve(self, stop: CancellationToken) {
        let connections = TaskTracker::new();
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = accept(&self.listener, &room) => accepted,
            };
            let Some((stream, place)) = accepted else { continue };
            let (gate, stop) = (self.gate.clone(), stop.clone());
            connections.spawn(async move {
                connection(stream, gate, stop).await;
                drop(place);
            });
        }
        drop(self.listener);
        // A connection ends with the answer to its request; after the cut none begins one.
        connections.close();
        if tokio::time::timeout(LEAVING, connections.wait()).await.is_err() {
            self.gate.cut.cancel();
        }
        self.gate.exchanges.close();
        self.gate.exchanges.wait().await;
    }
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = room.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            tracing::warn!(%error, "a connection was not accepted");
            // Out of descriptors: somebody has to end first.
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

async fn connection(stream: TcpStream, gate: Arc<Gate>, stop: CancellationToken) {
    let _best_effort = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let gate = gate.clone();
        async move { Ok::<_, Infallible>(respond(request, gate).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_CAP)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn respond(request: Request<Incoming>, gate: Arc<Gate>) -> Response<AnswerBody> {
    let (head, body) = request.into_parts();
    let route = Route::of(&head.method, head.uri.path(), &head.headers);
    let (Route::Ask(protocol) | Route::Free(protocol) | Route::Unknown(protocol)) = route else {
        return match guard::check_place(&head.headers, gate.options.port) {
            Ok(()) => Response::new(whole("caliban gateway\n".into())),
            Err(refusal) => refusal.answer(Protocol::Responses),
        };
    };
    let passed = guard::check_place(&head.headers, gate.options.port)
        .and_then(|()| guard::token(&head, protocol, &gate.options.keys));
    let token = match passed {
        Ok(token) => token,
        Err(refusal) => return refusal.answer(protocol),
    };
    if let Route::Unknown(_) = route {
        let why =
            format!("{} {} does not go through the gateway; these do: {PATHS}", head.method, head.uri.path());
        return GatewayRefusal::NotFound(why).answer(protocol);
    }
    if head.headers.contains_key(http::header::CONTENT_ENCODING) {
        let why = "send the body as it is: a compressed one cannot be counted";
        return GatewayRefusal::Bad(why.to_owned()).answer(protocol);
    }
    let body = match Limited::new(body, BODY_CAP).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            return GatewayRefusal::TooLarge(BODY_CAP).answer(protocol);
        }
        Err(_) => return GatewayRefusal::Bad("the body ended before its end".to_owned()).answer(protocol),
    };
    let ends = || GatewayRefusal::Unanswered("the gateway ends".to_owned());
    if gate.cut.is_cancelled() {
        return ends().answer(protocol);
    }
    // A task of its own: a client that goes away ends its connection, not the account of what was sent.
    let (reply, replied) = oneshot::channel();
    let asker = GatewayRequest { gate: gate.clone(), token, protocol, head, body };
    gate.exchanges.spawn(exchange::run(asker, route, reply));
    match replied.await {
        Ok(answer) => answer,
        Err(_) => ends().answer(protocol),
    }
}

impl Gate {
    /// Where requests of a protocol go.
    pub(crate) fn upstream(&self, protocol: Protocol, route: Route) -> Result<&Upstream, GatewayRefusal> {
        let Upstreams { anthropic, responses, chat, gemini } = &self.options.upstreams;
        let upstream = match (protocol, route) {
            (Protocol::Anthropic, _) => anthropic,
            // The list of models is that of either.
            (Protocol::Responses, Route::Free(_)) if responses.is_err() => chat,
            (Protocol::Responses, _) => responses,
            (Protocol::Chat, _) => chat,
            (Protocol::Gemini, _) => gemini,
        };
        upstream.as_ref().map_err(|why| GatewayRefusal::NoUpstream(why.clone()))
    }

    /// The purse of a token, for a request that is under way from now on.
    pub(crate) fn purse(&self, token: &Token) -> (Purse, UnderWay) {
        let mut purses = self.purses.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let ledger = (self.options.ledger)(token);
            let label = Some(token.label.clone());
            (Purse::in_ledger(&ledger, &token.account(), label, token.limits(), None), Arc::default())
        };
        let (purse, count) = purses.entry(token.id.clone()).or_insert_with(new);
        (purse.clone(), UnderWay::new(count.clone()))
    }
}

/// A request of a token, counted until this is dropped.
pub(crate) struct UnderWay {
    count: Arc<AtomicUsize>,
    /// How many there were before.
    before: usize,
}

impl UnderWay {
    fn new(count: Arc<AtomicUsize>) -> Self {
        let before = count.fetch_add(1, Ordering::AcqRel);
        Self { count, before }
    }

    /// Whether the token had others when this one came.
    pub(crate) fn is_beside_others(&self) -> bool {
        self.before > 0
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether an address is ours.
fn is_own(base: &str, port: u16) -> bool {
    caliban_http::Url::parse(base).is_ok_and(|url| {
        let is_here = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        is_here && url.port_or_known_default() == Some(port)
    })
}
