//! The server on the socket: connections, limits, and the way from a route to the owner and back.
//!
//! Owns every limit of a reader: who may connect (a01), how long a head and a body may take, how large they may be
//! (a14); how many there are at once is in [`connections`](super::connections). Out of file descriptors it lets few in, on spare
//! ones (`super::spare_descriptors`); it never spins (r13).

use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request as HttpRequest, Response, header};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::agent_client::Speaker;
use super::connections::{Connection, Connections, Doing, Room};
use super::peer::Peer;
use super::spare_descriptors::{Lent, Shortage, Spare};
use super::spawn::bad;
use super::stop as leaving;
use super::{
    DaemonAnswer, DaemonRequest, Msg, agent_log, answers, approve, diff, events, has_descriptors, history,
    inherit, internal, merge, out_of_descriptors,
    reach::{self, Steering},
    requeue, review, send, stopping, wake,
};
use crate::places::Places;
use crate::protocol::routes::{self, Verb};
use crate::protocol::{
    ApiError, ApproveRequest, BODY_CAP, DATA_HEADER, DenyRequest, ErrorBody, ErrorCode, HEADER,
    HandedSecrets, KeysRequest, KillRequest, MergeRequest, PauseRequest, REQUEST_HEADER, RequeueRequest,
    RespawnRequest, ResumeRequest, RmRequest, ScheduleRequest, SendRequest, SpawnRequest, Stopping, VERSION,
    WakeRequest, openapi,
};
use crate::sockets::Bound;

/// How long the head of a request may take, from the connection or the last answer on.
const HEAD_LIMIT: Duration = Duration::from_secs(30);
/// The same for a connection on spare descriptors.
const LENT_HEAD_LIMIT: Duration = Duration::from_millis(500);
const BODY_LIMIT: Duration = Duration::from_secs(30);
/// The same for a connection on spare descriptors.
const LENT_BODY_LIMIT: Duration = Duration::from_secs(1);
const NAME_CAP: usize = 128;
const HEAD_CAP: usize = 32 * 1024;
/// How long requests in flight are waited for when the daemon leaves. What takes longer (a kill with a long
/// grace) is on the disk, and the client asks the next daemon again.
const DRAIN_LIMIT: Duration = Duration::from_secs(15);
/// How long one who is sent away may take to read what was said last.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

type DaemonBody = BoxBody<Bytes, Infallible>;

/// Serves until `stop`, then finishes what is in flight.
pub(super) async fn serve(
    mut listeners: mpsc::Receiver<(UnixListener, Bound)>,
    places: &Places,
    inbox: mpsc::Sender<Msg>,
    stop: CancellationToken,
) {
    let Some((mut listener, mut bound)) = listeners.recv().await else { return };
    let (landings, looks) = (TaskTracker::new(), TaskTracker::new());
    let door = Arc::new(Door { places: places.clone(), inbox, stop: stop.clone(), landings, looks });
    let mut connections = JoinSet::new();
    let open = Connections::default();
    let mut spare = Spare::new();
    loop {
        let room = open.make_room(Instant::now());
        spare.take_back();
        // When all others wait for an answer, few more get in: a kill must not wait for them.
        let shortage = match (spare.is_out(), room) {
            (true, _) => Some(Shortage::Descriptors),
            (false, Room::NotBefore(None)) => Some(Shortage::Connections),
            (false, Room::Some | Room::NotBefore(Some(_))) => None,
        };
        let may_enter =
            !matches!(room, Room::NotBefore(Some(_))) && (shortage.is_none() || spare.has_place());
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = open.until(room) => {}
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            // The old one is gone from its place: nobody finds it any more.
            Some(again) = listeners.recv() => (listener, bound) = again,
            accepted = listener.accept(), if may_enter => match accepted {
                Ok((stream, _)) => {
                    // It took the last descriptor: only with the spare ones can be seen whose it is.
                    let shortage = shortage.or_else(|| lacks_descriptors(&mut spare));
                    if spare.is_out() {
                        open.send_away(Instant::now());
                    }
                    if let Some(peer) = Peer::of(&stream) {
                        let connection = open.enter(peer.pid_then(), &stop);
                        let lent = shortage.map(|shortage| spare.lend(shortage));
                        connections.spawn(converse(stream, peer, connection, lent, door.clone()));
                    }
                }
                Err(error) if out_of_descriptors(&error).is_some() && spare.close() => {
                    tracing::error!("{error}: connections are served one request each");
                }
                Err(error) => {
                    tracing::error!("no connection can be accepted: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    spare.set_aside();
                }
            },
        }
    }
    // First out of the way, so that new clients start another daemon, which waits for our lock.
    bound.remove();
    drop(listener);
    door.landings.close();
    door.looks.close();
    let drained = async {
        while connections.join_next().await.is_some() {}
        door.looks.wait().await;
    };
    if tokio::time::timeout(DRAIN_LIMIT, drained).await.is_err() {
        let count = connections.len().max(door.looks.len());
        tracing::warn!("left {count} requests unanswered after {DRAIN_LIMIT:?}");
    }
    // Without a limit: a merge that is cut short ends its hooks and puts the user's tree back. What only looks was left
    // above: a git that hangs on a dead disk keeps no next daemon from starting.
    door.landings.wait().await;
}

/// What every connection needs.
struct Door {
    places: Places,
    inbox: mpsc::Sender<Msg>,
    stop: CancellationToken,
    /// What lands work. It ends by itself when the daemon leaves.
    landings: TaskTracker,
    /// What runs git only to look. It ends by itself as well, unless its git hangs.
    looks: TaskTracker,
}

/// Runs what must come to its own end in a task: a caller who hangs up leaves neither a merge half done nor a git alone.
async fn run<T: Send + 'static>(
    tasks: &TaskTracker,
    work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    tasks.spawn(work).await.map_err(internal)?
}

async fn converse(
    stream: UnixStream,
    peer: Peer,
    connection: Connection,
    lent: Option<Lent>,
    door: Arc<Door>,
) {
    let (stopping, leave, connection) = (door.stop.clone(), connection.leave.clone(), Arc::new(connection));
    let (is_lent, lent) = (lent.is_some(), lent.map(Arc::new));
    let service = service_fn(move |request| {
        let (door, connection, lent) = (door.clone(), connection.clone(), lent.clone());
        async move {
            let mut response = respond(request, peer, &connection, lent.as_deref(), &door).await;
            if is_lent {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(if is_lent { LENT_HEAD_LIMIT } else { HEAD_LIMIT })
        .max_buf_size(HEAD_CAP)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = leave.cancelled() => {
            connection.as_mut().graceful_shutdown();
            // What is in flight is finished when the daemon leaves; one who is sent away has nothing in flight.
            let sent_away = async {
                stopping.run_until_cancelled(tokio::time::sleep(LEAVE_LIMIT)).await.is_some()
            };
            tokio::select! {
                outcome = connection.as_mut() => outcome,
                true = sent_away => return,
            }
        }
    };
    if let Err(error) = outcome
        && !error.is_incomplete_message()
    {
        tracing::debug!("a connection ended: {error}");
    }
}

/// Closes the spare descriptors when there is no other.
fn lacks_descriptors(spare: &mut Spare) -> Option<Shortage> {
    let error = std::fs::File::open("/dev/null").err()?;
    out_of_descriptors(&error)?;
    spare.close().then(|| {
        tracing::error!("{error}: connections are served one request each");
        Shortage::Descriptors
    })
}

async fn respond(
    request: HttpRequest<Incoming>,
    peer: Peer,
    connection: &Connection,
    lent: Option<&Lent>,
    door: &Door,
) -> Response<DaemonBody> {
    connection.does(Doing::Asks);
    let answered = answer(request, peer, lent, door).await;
    connection.does(if matches!(answered, Ok(HttpAnswer::Events(_))) {
        Doing::Reads
    } else {
        Doing::Nothing
    });
    let outcome = match answered {
        Ok(HttpAnswer::Json(status, bytes)) => json_response(status, bytes),
        Ok(HttpAnswer::Events(subscription)) => {
            let (inbox, stop) = (door.inbox.clone(), door.stop.clone());
            let feed =
                EventBody { blocks: events::feed(subscription, inbox, stop, connection.leave.clone()) };
            Response::builder()
                .header(header::CONTENT_TYPE, "text/event-stream")
                .header(header::CACHE_CONTROL, "no-store")
                .body(BoxBody::new(feed))
        }
        Err(error) => {
            let status = error.code.status();
            json_response(status, serde_json::to_vec(&ErrorBody { error }).unwrap_or_default())
        }
    };
    let mut response = outcome.unwrap_or_else(|_| Response::new(full(Vec::new())));
    response.headers_mut().insert(HEADER, VERSION.into());
    response
}

fn json_response(status: u16, bytes: Vec<u8>) -> http::Result<Response<DaemonBody>> {
    Response::builder().status(status).header(header::CONTENT_TYPE, "application/json").body(full(bytes))
}

enum HttpAnswer {
    Json(u16, Vec<u8>),
    Events(events::Subscription),
}

async fn answer(
    mut request: HttpRequest<Incoming>,
    peer: Peer,
    lent: Option<&Lent>,
    door: &Door,
) -> Result<HttpAnswer, ApiError> {
    let Door { places, inbox, stop, .. } = door;
    let (path, method) = (request.uri().path().to_owned(), request.method().clone());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let Some((route, id)) = routes::find(method.as_str(), &path) else { return Err(no_route(&path)) };
    // Whoever comes with another version must still be able to look, and to replace us.
    if !matches!(route.verb, Verb::Status | Verb::Shutdown) {
        check_protocol(&request)?;
        check_data(&request, places.base())?;
    }
    // On spare descriptors refuse requests that may block for ever, and limit slow ones.
    let _slow = match (lent, pace(route.verb)) {
        (Some(lent), Pace::Waits) => return Err(lent.shortage().refusal()),
        (Some(lent), Pace::Slow) => Some(lent.begin_slow()?),
        (Some(_), Pace::AtOnce) | (None, _) => None,
    };
    if lent.is_some() {
        request.extensions_mut().insert(BodyLimit(LENT_BODY_LIMIT));
    }
    if judges_the_caller(route.verb) {
        has_descriptors()?;
    }
    let id = decode(id)?;
    let name = name_of(&request)?;
    if decides_when_agents_start(route.verb) {
        requeue::check_caller(peer)?;
    }
    let id = match steers(route.verb) {
        Some(steering) => reach::steerable(id, steering, peer, inbox).await?,
        None => id,
    };
    let ask = match route.verb {
        Verb::OpenApi => return json(200, &openapi::document()),
        Verb::Wake => {
            let mut wanted = body_or_default::<WakeRequest>(request).await?;
            // Variables are not an agent's to hand to another (a11).
            if inherit::hold(&mut wanted.secrets, &mut None, peer.pid_now()).is_some() {
                wanted.secrets = HandedSecrets::default();
            }
            return json(200, &unless_stopped(stop, wake::until_awake(id, wanted, inbox)).await?);
        }
        Verb::Send => {
            let message = body::<SendRequest>(request).await?;
            let speaker = Speaker { inbox, caller: peer.behalf() };
            return json(200, &unless_stopped(stop, send::send(&id, message, &speaker)).await?);
        }
        Verb::Approve => {
            let yes = body::<ApproveRequest>(request).await?;
            let speaker = Speaker { inbox, caller: peer.behalf() };
            return json(200, &unless_stopped(stop, approve::approve(&id, yes, &speaker)).await?);
        }
        Verb::Deny => {
            let no = body::<DenyRequest>(request).await?;
            let speaker = Speaker { inbox, caller: peer.behalf() };
            return json(200, &unless_stopped(stop, approve::deny(&id, no, &speaker)).await?);
        }
        Verb::Log => {
            let ([raw], [after]) = parameters(["raw"], ["after"], &query)?;
            let row = Speaker { inbox, caller: None }.show(id).await?;
            let which = if raw { agent_log::LogFile::WorkerLog } else { agent_log::LogFile::Transcript };
            return json(200, &agent_log::log(row, which, after).await?);
        }
        Verb::Diff => {
            let [stat] = flags(["stat"], &query)?;
            let row = Speaker { inbox, caller: None }.show(id).await?;
            let whole = if stat { diff::Whole::Figures } else { diff::Whole::Patch };
            // Nobody reads it when the caller hangs up.
            let cancel = stop.child_token();
            let _hung_up = cancel.clone().drop_guard();
            return json(200, &run(&door.looks, diff::diff(row, whole, places.clone(), cancel)).await?);
        }
        Verb::Review => {
            let row = Speaker { inbox, caller: None }.show(id).await?;
            let work = review::review(row, places.clone(), inbox.clone(), stop.child_token());
            return json(200, &run(&door.looks, work).await?);
        }
        Verb::Merge => {
            merge::check_caller(peer)?;
            let wanted = body_or_default::<MergeRequest>(request).await?;
            let row = Speaker { inbox, caller: None }.show(id).await?;
            let tasks = if wanted.preview { &door.looks } else { &door.landings };
            let work = merge::merge(row, wanted, places.clone(), inbox.clone(), stop.child_token());
            return json(200, &run(tasks, work).await?);
        }
        Verb::Requeue => DaemonRequest::Requeue(id, body::<RequeueRequest>(request).await?),
        Verb::Schedule => DaemonRequest::Schedule(Box::new(body::<ScheduleRequest>(request).await?)),
        Verb::Unschedule => DaemonRequest::Unschedule(id),
        Verb::PauseSchedule => DaemonRequest::PauseSchedule(id, body::<PauseRequest>(request).await?.paused),
        Verb::RunSchedule => DaemonRequest::RunSchedule(id),
        Verb::ScheduleKeys => DaemonRequest::ScheduleKeys(body::<KeysRequest>(request).await?),
        Verb::Schedules => DaemonRequest::Schedules,
        Verb::Approvals => DaemonRequest::Approvals,
        Verb::History => {
            let ([], [from, to]) = parameters([], ["from", "to"], &query)?;
            let to = if to == 0 { u64::MAX } else { to };
            return json(200, &history::history(from, to, inbox).await?);
        }
        Verb::Status => DaemonRequest::Status,
        Verb::List => DaemonRequest::List,
        Verb::Show => DaemonRequest::Show(id),
        Verb::Events => DaemonRequest::Events,
        Verb::Shutdown => {
            leaving::check_caller(peer)?;
            DaemonRequest::Shutdown
        }
        Verb::Rm => DaemonRequest::Rm(id, rm_request(&query)?),
        Verb::Spawn => DaemonRequest::Spawn(Box::new(body::<SpawnRequest>(request).await?), peer.pid_now()),
        Verb::Kill => DaemonRequest::Kill(id, body_or_default::<KillRequest>(request).await?),
        Verb::Respawn => {
            DaemonRequest::Respawn(id, body_or_default::<RespawnRequest>(request).await?, peer.pid_now())
        }
        Verb::Resume => {
            DaemonRequest::Resume(id, body_or_default::<ResumeRequest>(request).await?, peer.pid_now())
        }
    };
    let (reply, answer) = answers::channel();
    inbox.send(Msg::Request(ask, reply.named(name))).await.map_err(|_| stopping())?;
    match answer.await.map_err(|_| stopping())?? {
        DaemonAnswer::Status(status) => json(200, &status),
        DaemonAnswer::List(text) => Ok(HttpAnswer::Json(200, text)),
        DaemonAnswer::Row(row) => json(200, &row),
        DaemonAnswer::Spawned(spawned) => json(201, &spawned),
        DaemonAnswer::Respawned(respawned) => json(201, &respawned),
        DaemonAnswer::Removed(removed) => json(200, &removed),
        DaemonAnswer::Events(subscription) => Ok(HttpAnswer::Events(subscription)),
        DaemonAnswer::Approvals(open) => json(200, &open),
        DaemonAnswer::Schedules(list) => json(200, &list),
        DaemonAnswer::Schedule(row) => json(200, &row),
        DaemonAnswer::Stopping => json(202, &Stopping { stopping: true }),
        DaemonAnswer::Reader(_) | DaemonAnswer::Waking(_) => {
            Err(ApiError::new(ErrorCode::Internal, "this has no answer of its own"))
        }
    }
}

/// What waits for an agent does not keep us from leaving: the next daemon is asked again.
async fn unless_stopped<T>(
    stop: &CancellationToken,
    answer: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    stop.run_until_cancelled(answer).await.unwrap_or_else(|| Err(stopping()))
}

enum Pace {
    /// The daemon has it.
    AtOnce,
    /// As long as processes and the disk do.
    Slow,
    /// Perhaps for ever.
    Waits,
}

fn pace(verb: Verb) -> Pace {
    match verb {
        Verb::Events | Verb::Wake | Verb::Send | Verb::Approve | Verb::Deny => Pace::Waits,
        Verb::Diff | Verb::Review | Verb::Merge => Pace::Waits,
        Verb::Spawn | Verb::Kill | Verb::Respawn | Verb::Resume | Verb::Rm => Pace::Slow,
        Verb::Requeue | Verb::Schedule | Verb::Unschedule | Verb::PauseSchedule => Pace::Slow,
        Verb::RunSchedule | Verb::ScheduleKeys => Pace::Slow,
        Verb::Status | Verb::List | Verb::Show | Verb::Approvals | Verb::OpenApi | Verb::Shutdown => {
            Pace::AtOnce
        }
        Verb::Log | Verb::History | Verb::Schedules => Pace::AtOnce,
    }
}

/// How long the body of a request may take, where that is not [`BODY_LIMIT`].
#[derive(Debug, Clone, Copy)]
struct BodyLimit(Duration);

/// Whether only a person may ask for it.
fn decides_when_agents_start(verb: Verb) -> bool {
    matches!(verb, Verb::Requeue | Verb::Schedule | Verb::Unschedule | Verb::PauseSchedule)
        || matches!(verb, Verb::RunSchedule | Verb::ScheduleKeys)
}

/// Whether it starts, ends or tells an agent that is there: then a command of an agent reaches few of them.
fn steers(verb: Verb) -> Option<Steering> {
    match verb {
        Verb::Send => Some(Steering::Tell),
        Verb::Wake => Some(Steering::Wake),
        Verb::Kill | Verb::Respawn | Verb::Resume | Verb::Rm => Some(Steering::Lead),
        _ => None,
    }
}

/// Whether it matters who asks, which is looked up in `/proc`.
fn judges_the_caller(verb: Verb) -> bool {
    match verb {
        Verb::Spawn | Verb::Respawn | Verb::Resume | Verb::Wake => true,
        Verb::Send | Verb::Approve | Verb::Deny | Verb::Merge => true,
        Verb::Status | Verb::List | Verb::Show | Verb::Approvals | Verb::OpenApi => false,
        Verb::Kill | Verb::Rm | Verb::Shutdown => true,
        Verb::Events | Verb::Diff | Verb::Review | Verb::Log | Verb::History => false,
        Verb::Schedules => false,
        Verb::Requeue | Verb::Schedule | Verb::Unschedule | Verb::PauseSchedule => true,
        Verb::RunSchedule | Verb::ScheduleKeys => true,
    }
}

fn json(status: u16, value: &impl Serialize) -> Result<HttpAnswer, ApiError> {
    Ok(HttpAnswer::Json(status, serde_json::to_vec(value).map_err(internal)?))
}

/// The caller's name for the request.
fn name_of(request: &HttpRequest<Incoming>) -> Result<Option<String>, ApiError> {
    let Some(name) = request.headers().get(REQUEST_HEADER) else { return Ok(None) };
    match name.to_str() {
        Ok(name) if (1..=NAME_CAP).contains(&name.len()) => Ok(Some(name.to_owned())),
        _ => Err(bad(format!("{REQUEST_HEADER} has 1 to {NAME_CAP} characters"))),
    }
}

/// A client of another protocol is told so; one that says nothing (curl) is served.
fn check_protocol(request: &HttpRequest<Incoming>) -> Result<(), ApiError> {
    match request.headers().get(HEADER).map(|value| value.to_str().unwrap_or("?")) {
        Some(theirs) if theirs != VERSION.to_string() => {
            let text = format!("this daemon speaks protocol {VERSION}, the client {theirs}");
            Err(ApiError::new(ErrorCode::Protocol, text)
                .hint("`caliban daemon restart` starts the client's version; running agents live on"))
        }
        _ => Ok(()),
    }
}

/// A client that keeps its data elsewhere looks for another fleet than ours, and is told so.
fn check_data(request: &HttpRequest<Incoming>, base: &Path) -> Result<(), ApiError> {
    use std::os::unix::ffi::OsStringExt as _;
    let Some(theirs) = request.headers().get(DATA_HEADER) else { return Ok(()) };
    let theirs = decode_bytes(theirs.to_str().unwrap_or_default())?;
    let theirs = std::path::PathBuf::from(std::ffi::OsString::from_vec(theirs));
    if theirs == base || is_same(&theirs, base) {
        return Ok(());
    }
    let show = |path: &Path| caliban_core::inert::line(&path.display().to_string()).into_owned();
    let text = format!(
        "the daemon of this repo keeps its data in {}, this command in {}",
        show(base),
        show(&theirs)
    );
    Err(ApiError::new(ErrorCode::OtherData, text).hint(
        "is XDG_DATA_HOME or HOME another one than where the daemon was started? `caliban daemon stop` ends that daemon, \
         its agents live on; CALIBAN_DAEMON_RUNTIME_DIR keeps two fleets of one repo apart",
    ))
}

/// Whether two names lead to one directory.
fn is_same(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino()));
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

fn no_route(path: &str) -> ApiError {
    let methods = routes::methods(path);
    let text = if methods.is_empty() {
        format!("there is no {}", caliban_core::inert::quoted(path))
    } else {
        format!("{} takes {}", caliban_core::inert::quoted(path), methods.join(", "))
    };
    ApiError::new(ErrorCode::NoRoute, text).hint("GET /openapi.json lists what there is")
}

async fn body<T: DeserializeOwned>(request: HttpRequest<Incoming>) -> Result<T, ApiError> {
    let bytes = read(request).await?;
    serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))
}

async fn body_or_default<T: DeserializeOwned + Default>(
    request: HttpRequest<Incoming>,
) -> Result<T, ApiError> {
    let bytes = read(request).await?;
    if bytes.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))
}

async fn read(request: HttpRequest<Incoming>) -> Result<Bytes, ApiError> {
    let limit = request.extensions().get::<BodyLimit>().map_or(BODY_LIMIT, |limit| limit.0);
    let collected = Limited::new(request.into_body(), BODY_CAP).collect();
    match tokio::time::timeout(limit, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err(ApiError::new(ErrorCode::TooLarge, format!("a request has at most {BODY_CAP} bytes")))
        }
        Ok(Err(error)) => Err(bad(error.to_string())),
        Err(_) => Err(ApiError::new(ErrorCode::Timeout, format!("the body took more than {limit:?}"))),
    }
}

fn rm_request(query: &str) -> Result<RmRequest, ApiError> {
    let [force, keep, purge] = flags(["force", "keep", "purge"], query)?;
    Ok(RmRequest { force, keep, purge })
}

/// The parameters of these names, each true or false.
fn flags<const N: usize>(names: [&str; N], query: &str) -> Result<[bool; N], ApiError> {
    parameters(names, [], query).map(|(flags, [])| flags)
}

/// The parameters of these names: those that are true or false, and those that are numbers. One that is absent is false, or 0.
fn parameters<const N: usize, const M: usize>(
    names: [&str; N],
    numbers: [&str; M],
    query: &str,
) -> Result<([bool; N], [u64; M]), ApiError> {
    let (mut flags, mut values) = ([false; N], [0; M]);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
        if let Some((number, _)) = values.iter_mut().zip(numbers).find(|(_, known)| *known == name) {
            *number = value.parse::<u64>().map_err(|_| bad(format!("{name} is a number")))?;
            continue;
        }
        let value = match value {
            "true" | "1" | "" => true,
            "false" | "0" => false,
            _ => return Err(bad(format!("{name} is true or false"))),
        };
        match flags.iter_mut().zip(names).find(|(_, known)| *known == name) {
            Some((flag, _)) => *flag = value,
            None => return Err(bad(format!("there is no parameter {}", caliban_core::inert::quoted(name)))),
        }
    }
    Ok((flags, values))
}

/// Takes `%41` for `A`.
fn decode(text: &str) -> Result<String, ApiError> {
    String::from_utf8(decode_bytes(text)?).map_err(|_| badly_encoded())
}

fn badly_encoded() -> ApiError {
    ApiError::new(ErrorCode::BadRequest, "the path is not encoded rightly")
}

fn decode_bytes(text: &str) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(badly_encoded()) };
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| badly_encoded())?);
    }
    Ok(bytes)
}

fn full(bytes: Vec<u8>) -> DaemonBody {
    BoxBody::new(Full::new(Bytes::from(bytes)))
}

/// The body of an event stream.
struct EventBody {
    blocks: mpsc::Receiver<Bytes>,
}

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.blocks.poll_recv(context).map(|block| block.map(|block| Ok(Frame::data(block))))
    }
}
