//! The daemon: one task owns the fleet, decides, and has others carry out what it decided.
//!
//! One file per verb. The owner never waits: commits go to [`store`], starts to [`start`], ends of processes come
//! from [`watch`], and each sends its result back as a [`Msg`]. A request is answered when its effect is durable.

mod adopt;
mod agent;
mod agent_client;
mod agent_log;
mod answers;
mod approve;
mod archive;
mod connections;
mod diff;
mod end;
mod events;
mod history;
mod http;
mod inherit;
mod kill;
mod list;
mod listener;
pub(crate) mod log;
mod merge;
mod new_run;
pub(crate) mod notify;
mod peer;
mod phase;
mod queue;
mod reach;
mod recover;
mod requeue;
mod resolve;
mod respawn;
mod resume;
mod review;
mod rm;
mod schedule;
mod send;
mod slots;
mod spare_descriptors;
mod spawn;
mod start;
mod start_time;
mod status;
mod stop;
mod stop_order;
mod store;
mod timeout;
mod unconfirmed_run;
mod wake;
mod watch;
mod worktree;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{LifecycleEvent, State};
use caliban_core::names::Slug;
use caliban_fleet::decide;
use caliban_store::fleet::{Registry, RegistryChange, StatusChange};
use caliban_store::{HostId, StoreError, StoreUrl};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::agent::DaemonAgent;
use self::phase::{Ordered, Waiter};
use self::schedule::Schedule;
use self::slots::Slots;
use self::store::{Batch, Store, Then};
use self::watch::Watch;
use crate::daemon_options::DaemonOptions;
use crate::lock::HeldLock;
use crate::places::Places;
use crate::protocol::{
    AgentRow, ApiError, ApprovalList, DaemonStatus, ErrorCode, FoundAtStart, KeysRequest, KillRequest,
    Removed, RequeueRequest, RespawnRequest, Respawned, ResumeRequest, RmRequest, ScheduleList,
    ScheduleRequest, ScheduleRow, SpawnRequest, Spawned, WakeRequest,
};
use crate::records::{ExitRecord, ShimRecord};

/// Messages to the owner that may wait.
const INBOX: usize = 1024;
/// How many messages are decided before what they changed is handed on to be committed together.
const BATCH: usize = 64;
/// How often the owner looks by itself: for what could not be saved, started or watched.
const TICK: Duration = Duration::from_secs(1);
/// Every how many ticks it looks at everybody's files.
const LOOK_AT_ALL: u32 = 5;
/// Every how many ticks it looks for private `/tmp`s that nobody needs any more: six hours.
const SWEEP_TMP: u32 = 6 * 60 * 60;

/// A message to the owner.
#[derive(Debug)]
pub(in crate::daemon) enum Msg {
    /// A request, and where its answer goes.
    Request(DaemonRequest, ReplyTo),
    /// A batch is on the disk, or not.
    Stored(Vec<Then>, Result<(), Arc<StoreError>>),
    /// A start is over.
    Started { id: AgentId, nonce: String, outcome: Result<ShimRecord, start::StartError> },
    /// An unconfirmed run has begun after all (its shim), or never will.
    Settled { id: AgentId, nonce: String, outcome: Result<Option<ShimRecord>, String> },
    /// The order to end an agent is on the disk, or cannot be written.
    StopOrdered { id: AgentId, nonce: String, ordered: Ordered },
    /// A run is over, its whole tree is gone.
    Gone { id: AgentId, nonce: String, exit: Option<ExitRecord> },
    /// A worktree was taken care of, for a removal or a respawn.
    Disposed { id: AgentId, purpose: Box<worktree::Purpose>, outcome: Result<worktree::Disposed, String> },
    /// The directory of an agent that is removed was set aside, or could not be.
    SetAside { id: AgentId, reply: ReplyTo, outcome: std::io::Result<Removed> },
    /// The directory of an agent that was respawned is in the archive, if that was possible.
    Archived { respawned: Respawned, reply: ReplyTo },
    /// These agents have a place among those of all repos; whether others of ours have to wait for one.
    SlotsTaken { granted: Vec<AgentId>, is_full: bool },
    /// A place of another repo may be free.
    SlotFree,
    /// How the work of an agent stands after so many runs; whether it was that one's turn.
    Reviewed {
        id: AgentId,
        runs: u32,
        began: Instant,
        review: Result<caliban_core::review::Review, String>,
        is_due: bool,
    },
    /// Where the user's branches are, if git can tell.
    Branches(Option<Vec<String>>),
    /// The sweep at start is over.
    Swept { count: u64, notes: Vec<String> },
}

#[derive(Debug)]
pub(in crate::daemon) enum DaemonRequest {
    Status,
    List,
    Show(String),
    /// The process that asks, by its id.
    Spawn(Box<SpawnRequest>, i32),
    Kill(String, KillRequest),
    /// With the process that asks.
    Respawn(String, RespawnRequest, i32),
    /// With the process that asks.
    Resume(String, ResumeRequest, i32),
    Rm(String, RmRequest),
    Requeue(String, RequeueRequest),
    Schedules,
    Schedule(Box<ScheduleRequest>),
    Unschedule(String),
    PauseSchedule(String, bool),
    RunSchedule(String),
    ScheduleKeys(KeysRequest),
    Wake(String, Arc<WakeRequest>),
    Approvals,
    Reader,
    Events,
    Shutdown,
}

#[derive(Debug)]
pub(in crate::daemon) enum DaemonAnswer {
    Status(Box<DaemonStatus>),
    /// As it is sent.
    List(Vec<u8>),
    Row(Box<AgentRow>),
    Spawned(Spawned),
    Respawned(Respawned),
    Removed(Removed),
    Waking(wake::Waking),
    Approvals(ApprovalList),
    Reader(store::RegistryReader),
    Schedules(ScheduleList),
    Schedule(Box<ScheduleRow>),
    Events(events::Subscription),
    Stopping,
}

pub(in crate::daemon) use self::answers::ReplyTo;

/// The answer of a verb; none when it has taken the reply and answers later.
pub(in crate::daemon) type VerbResult = Result<Option<DaemonAnswer>, ApiError>;

/// Runs the daemon until it is asked to leave. `ready` is called when it listens. Returns the lock, to be let go of when
/// nothing runs any more.
pub(crate) async fn serve(
    places: &Places,
    options: &DaemonOptions,
    (held, who): (HeldLock, &str),
    ready: impl FnOnce(),
) -> Result<HeldLock, String> {
    let url = StoreUrl::sqlite(places.database());
    recover::prepare(places);
    let host = crate::process::machine().map_err(|error| error.to_string())?;
    let in_words = |error: StoreError| error.to_string();
    let mut registry = Registry::open(&url, &HostId::of(&host)).await.map_err(in_words)?;
    let stop = CancellationToken::new();
    stop::on_signals(&stop).map_err(|error| format!("signals: {error}"))?;
    let (inbox, messages) = mpsc::channel(INBOX);
    let mut known = adopt::read(&mut registry, places).await.map_err(in_words)?;
    let lost = recover::lost(&mut registry, places, &mut known).await.map_err(in_words)?;
    let recorded = registry.answers().await.map_err(in_words)?;
    let schedules = registry.schedules().await.map_err(in_words)?;
    let (store, writer) = Store::new(registry, inbox.clone());
    let (slots, desk) = Slots::new(places, inbox.clone());
    let mut owner = Owner::new(places, options, inbox.clone(), (store, slots), stop.clone())?;
    owner.tasks.spawn(desk);
    owner.know_schedules(schedules);
    owner.answers = answers::Answers::of(recorded);
    owner.adopt(known).await;
    owner.found.notes.extend(lost);
    let (listener, listeners) = listener::Listener::open(places, held, who)?;
    owner.listener = Some(listener);
    tracing::info!(pid = std::process::id(), socket = %places.socket().display(), "listening; {}", owner.found.line());
    ready();
    owner.sweep_worktrees();
    let over = CancellationToken::new();
    let server = async {
        http::serve(listeners, places, inbox, stop.clone()).await;
        over.cancel();
    };
    let decide = async { owner.run(messages, over.clone()).await.close().await };
    let (held, (), ()) = tokio::join!(decide, server, writer);
    tracing::info!("left; agents live on");
    held.ok_or_else(|| "the lock is lost".to_owned())
}

/// The task that owns the fleet.
pub(in crate::daemon) struct Owner {
    places: Places,
    options: DaemonOptions,
    agents: BTreeMap<AgentId, DaemonAgent>,
    schedules: BTreeMap<Slug, Schedule>,
    slots: Slots,
    next_seq: i64,
    found: FoundAtStart,
    since: Instant,
    batch: Batch,
    store: Store,
    inbox: mpsc::Sender<Msg>,
    tasks: JoinSet<()>,
    watch: Watch,
    events: events::EventRing,
    reviews: review::Reviews,
    stop: CancellationToken,
    /// Where we listen, once we do.
    listener: Option<listener::Listener>,
    /// Answers to requests that may come again.
    answers: answers::Answers,
    /// Agents that were removed, and whose rows could not be deleted yet.
    undeleted: Vec<AgentId>,
    /// Whether something may have come into the archive since it was pruned last.
    archive_has_grown: bool,
    /// Why the registry cannot be written, as long as that is so.
    trouble: Option<String>,
    /// When it last could not.
    trouble_since: Option<tokio::time::Instant>,
    boot_id: String,
    own_program: std::path::PathBuf,
    ticks: u32,
    /// When the last request came.
    asked: Instant,
    /// While agents are adopted nothing is started: the number of free places is not known yet.
    adopting: bool,
}

impl Owner {
    fn new(
        places: &Places,
        options: &DaemonOptions,
        inbox: mpsc::Sender<Msg>,
        (store, slots): (Store, Slots),
        stop: CancellationToken,
    ) -> Result<Self, String> {
        Ok(Self {
            places: places.clone(),
            options: options.clone(),
            agents: BTreeMap::new(),
            schedules: BTreeMap::new(),
            slots,
            next_seq: 1,
            found: FoundAtStart::default(),
            since: Instant::now(),
            batch: Batch::default(),
            store,
            inbox,
            tasks: JoinSet::new(),
            watch: Watch::new(),
            events: events::EventRing::new(),
            reviews: review::Reviews::default(),
            stop,
            listener: None,
            answers: answers::Answers::default(),
            undeleted: Vec::new(),
            archive_has_grown: true,
            trouble: None,
            trouble_since: None,
            boot_id: crate::process::boot_id().map_err(|error| format!("boot id: {error}"))?,
            own_program: start::own_program(),
            ticks: 0,
            asked: Instant::now(),
            adopting: true,
        })
    }

    /// Decides until the server is over.
    async fn run(mut self, mut messages: mpsc::Receiver<Msg>, over: CancellationToken) -> Self {
        self.adopting = false;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.start_ready();
        self.flush();
        loop {
            // Unbiased: clients that ask without pause must not starve ticks and news.
            tokio::select! {
                message = messages.recv() => match message {
                    Some(message) => {
                        self.take(message);
                        for _ in 1..BATCH {
                            match messages.try_recv() {
                                Ok(message) => self.take(message),
                                Err(_) => break,
                            }
                        }
                    }
                    None => break,
                },
                () = self.watch.changed() => self.refresh(),
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => {}
                () = over.cancelled() => break,
                _ = tick.tick() => self.tick(),
            }
            self.flush();
        }
        self.save_unsaved();
        self.flush();
        self
    }

    /// Drops the handles of the writer, which ends when it has written its queue.
    async fn close(mut self) -> Option<HeldLock> {
        self.tasks.shutdown().await;
        self.listener.map(listener::Listener::let_go)
    }

    fn take(&mut self, message: Msg) {
        match message {
            Msg::Request(request, reply) => self.request(request, reply),
            Msg::Stored(thens, Ok(())) => {
                (self.trouble, self.trouble_since) = (None, None);
                thens.into_iter().for_each(|then| self.stored(then));
            }
            Msg::Stored(thens, Err(error)) => {
                self.store_failed(&error);
                // The last change is undone first.
                thens.into_iter().rev().for_each(|then| self.not_stored(then, &error));
            }
            Msg::Started { id, nonce, outcome } => self.started(id, &nonce, outcome),
            Msg::Settled { id, nonce, outcome } => self.settled(id, &nonce, outcome),
            Msg::StopOrdered { id, nonce, ordered } => self.stop_ordered(id, &nonce, ordered),
            Msg::Gone { id, nonce, exit } => self.gone(id, &nonce, exit.as_ref()),
            Msg::Disposed { id, purpose, outcome } => self.disposed(id, *purpose, outcome),
            Msg::SetAside { id, reply, outcome } => self.set_aside(id, reply, outcome),
            Msg::Archived { respawned, reply } => self.archived(respawned, reply),
            Msg::SlotsTaken { granted, is_full } => self.slots_taken(granted, is_full),
            Msg::SlotFree => self.start_ready(),
            Msg::Reviewed { id, runs, began, review, is_due } => {
                self.reviewed(id, runs, began, review, is_due);
            }
            Msg::Branches(branches) => self.branches_found(branches),
            Msg::Swept { count, notes } => {
                self.found.swept = count;
                self.found.notes.extend(notes);
            }
        }
    }

    fn request(&mut self, request: DaemonRequest, mut reply: ReplyTo) {
        self.asked = Instant::now();
        if let Some(answer) = self.carry_out(request, &mut reply).transpose() {
            reply.send(answer);
        }
    }

    fn carry_out(&mut self, request: DaemonRequest, reply: &mut ReplyTo) -> VerbResult {
        let happens_once =
            matches!(request, DaemonRequest::Respawn(..) | DaemonRequest::Resume(..) | DaemonRequest::Rm(..));
        if happens_once && let Some(known) = self.known_answer(reply) {
            return known.map(Some);
        }
        let answer = match request {
            DaemonRequest::Status => Ok(self.status()),
            DaemonRequest::List => self.list(),
            DaemonRequest::Show(query) => self.show(&query),
            DaemonRequest::Reader => Ok(DaemonAnswer::Reader(self.store.reader())),
            DaemonRequest::Approvals => {
                self.refresh();
                Ok(DaemonAnswer::Approvals(approve::open(self.rows())))
            }
            DaemonRequest::Requeue(query, request) => self.requeue(&query, request),
            DaemonRequest::Schedules => Ok(DaemonAnswer::Schedules(self.schedules())),
            DaemonRequest::ScheduleKeys(request) => self.schedule_keys(&request).map(DaemonAnswer::Schedules),
            DaemonRequest::Schedule(request) => return self.schedule(*request, reply),
            DaemonRequest::Unschedule(name) => return self.unschedule(&name, reply),
            DaemonRequest::PauseSchedule(name, paused) => return self.pause_schedule(&name, paused, reply),
            DaemonRequest::RunSchedule(name) => return self.run_schedule(&name, reply),
            DaemonRequest::Events => Ok(self.subscribe()),
            DaemonRequest::Shutdown => Ok(self.shutdown()),
            DaemonRequest::Wake(query, request) => self.wake(&query, &request),
            DaemonRequest::Spawn(request, peer) => return self.spawn(*request, peer, reply),
            DaemonRequest::Kill(query, request) => return self.kill(&query, &request, reply),
            DaemonRequest::Respawn(query, request, peer) => {
                return self.respawn(&query, request, peer, reply);
            }
            DaemonRequest::Resume(query, request, peer) => return self.resume(&query, request, peer, reply),
            DaemonRequest::Rm(query, request) => return self.rm(&query, request, reply),
        };
        answer.map(Some)
    }

    /// What was waiting for the disk happens.
    fn stored(&mut self, then: Then) {
        match then {
            Then::Nothing(_) => {}
            Then::Spawned(id) => self.spawned(id),
            Then::Renewed { id, nonce, renewal } => self.renewed(id, &nonce, renewal),
            Then::Row { id, reply } => reply.send(self.row_answer(id)),
            Then::Deleted(id) => self.deleted(id),
            Then::Answered { request, kept } => self.answered(request, kept),
            Then::Respawned { respawned, reply } => self.respawned(respawned, reply),
            Then::Scheduled { name, before, reply } => self.schedule_stored(&name, before, reply),
        }
    }

    /// What was waiting for the disk does not happen.
    fn not_stored(&mut self, then: Then, error: &StoreError) {
        let refusal = store_refusal(error);
        match then {
            // What has happened has happened; it is saved when that works again.
            Then::Nothing(id) => self.mark_unsaved(id),
            Then::Deleted(id) => self.undeleted.push(id),
            // Whoever asks again is refused in words, or it happens then.
            Then::Answered { .. } => {}
            Then::Spawned(id) => self.not_spawned(id, &refusal),
            Then::Renewed { id, nonce, renewal } => self.not_renewed(id, &nonce, renewal, refusal),
            Then::Row { id, reply } => self.end_not_stored(id, reply, error),
            Then::Respawned { respawned, reply } => self.not_respawned(&respawned, reply, refusal),
            Then::Scheduled { name, before, reply } => {
                self.schedule_not_stored(name, before, reply, refusal);
            }
        }
    }

    fn store_failed(&mut self, error: &StoreError) {
        let text = error.to_string();
        if self.trouble.as_deref() != Some(&text) {
            tracing::error!("the registry cannot be written: {text}");
        }
        (self.trouble, self.trouble_since) = (Some(text), Some(tokio::time::Instant::now()));
        if matches!(error, StoreError::Replaced(_)) {
            // What this daemon knows is in no file any more but in those of the agents.
            recover::needed(&self.places);
        }
        if error.is_unconfirmed() || matches!(error, StoreError::Replaced(_)) {
            // After a failed sync nobody knows what is on the disk. The next daemon reads it.
            tracing::error!("leaving, so that the next daemon reads what the disk really has");
            self.stop.cancel();
        }
    }

    /// Applies an event, saves the result and publishes it. An event that the state refuses changes nothing.
    fn apply(&mut self, id: AgentId, event: LifecycleEvent) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let before = agent.record.status.clone();
        // A worker that reported its end sends the notice itself.
        let is_told = matches!(event, LifecycleEvent::Ended(_))
            && agent.own_report().is_some_and(|report| report.outcome().is_some());
        let passing = matches!(event, LifecycleEvent::TurnStarted | LifecycleEvent::TurnEnded)
            || matches!(event, LifecycleEvent::Waits(_) | LifecycleEvent::GoesOn);
        match agent.record.status.apply(event) {
            Ok(after) => agent.record.status = after,
            Err(refused) => return tracing::warn!(%id, "{refused}"),
        }
        let after = agent.record.status.state();
        if after.is_ending() {
            agent.phase.end();
        }
        if before.state() != after {
            tracing::info!(%id, "{} -> {after}{}", before.state(), agent.ending_in_words());
        }
        let is_respawn = |waiter: &Waiter| matches!(waiter, Waiter::Leave(worktree::Purpose::Respawn(..)));
        // Agents that wait for a respawned agent wait for its successor.
        let respawned = agent.phase.waiting().iter().any(is_respawn);
        if passing {
            // The worker's own file says it too: it need not be synced at once, only some time.
            agent.unsaved = true;
            let status = &agent.record.status;
            self.batch.pass(StatusChange::new(id, crate::wall_ms(), status));
        } else {
            self.save(id, Then::Nothing(id));
        }
        self.publish(id);
        if before.state() == after {
            return;
        }
        self.review_anew(id);
        if after.is_ending() && !is_told {
            self.tell(id);
        }
        if after.is_ending() && !respawned {
            self.ended(id, after);
        } else if after == State::Idle {
            // Interactive: it has done its task, and waits for a message.
            self.ended(id, State::Done);
        }
    }

    /// Has the present record committed; `then` happens afterwards.
    fn save(&mut self, id: AgentId, then: Then) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        agent.record.updated_at = crate::wall_ms();
        agent.unsaved = false;
        self.batch.add(RegistryChange::Update(Box::new(agent.record.clone())), then);
    }

    fn mark_unsaved(&mut self, id: AgentId) {
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.unsaved = true;
        }
    }

    fn flush(&mut self) {
        if !self.batch.is_empty() {
            self.store.commit(std::mem::take(&mut self.batch));
        }
    }

    /// The agents of which this is so.
    fn ids_of(&self, is_so: impl Fn(&DaemonAgent) -> bool) -> Vec<AgentId> {
        self.agents.values().filter(|agent| is_so(agent)).map(|agent| agent.record.id).collect()
    }

    fn save_unsaved(&mut self) {
        for id in self.ids_of(|agent| agent.unsaved) {
            self.save(id, Then::Nothing(id));
        }
    }

    fn tick(&mut self) {
        self.keep_listening();
        self.save_unsaved();
        self.delete_rows();
        self.prune_archive();
        self.look_again();
        self.settle_doubts();
        if self.ticks.is_multiple_of(SWEEP_TMP) {
            self.sweep_private_tmp();
        }
        self.ticks = self.ticks.wrapping_add(1);
        let all = self.ticks.is_multiple_of(LOOK_AT_ALL);
        if all {
            self.look_at_branches();
        }
        self.refresh_all(if all { watch::Whom::All } else { watch::Whom::NotCovered });
        self.end_overdue();
        self.run_schedules();
        self.start_ready();
        self.leave_if_unused();
    }

    /// Sends a message to ourselves from a task.
    fn later(&mut self, task: impl Future<Output = Option<Msg>> + Send + 'static) {
        let inbox = self.inbox.clone();
        self.tasks.spawn(async move {
            if let Some(message) = task.await {
                // The owner may have left: then the next daemon finds out by itself.
                let _left = inbox.send(message).await;
            }
        });
    }
}

/// The refusal of a request about an agent that was removed meanwhile.
pub(in crate::daemon) fn gone(id: AgentId) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("agent {id} is gone"))
}

pub(in crate::daemon) fn internal(error: impl ToString) -> ApiError {
    ApiError::new(ErrorCode::Internal, error.to_string())
}

/// The refusal of a request that comes when the daemon leaves.
pub(in crate::daemon) fn stopping() -> ApiError {
    ApiError::new(ErrorCode::Stopping, "the daemon is leaving")
}

/// Refuses when no file can be opened: then nobody can tell who asks, and nothing can be started.
pub(in crate::daemon) fn has_descriptors() -> Result<(), ApiError> {
    match std::fs::File::open("/dev/null") {
        Err(error) => out_of_descriptors(&error).map_or(Ok(()), Err),
        Ok(_) => Ok(()),
    }
}

/// The refusal for an error that says that the daemon, or the system, has no file descriptor left.
pub(in crate::daemon) fn out_of_descriptors(error: &std::io::Error) -> Option<ApiError> {
    match rustix::io::Errno::from_io_error(error)? {
        rustix::io::Errno::MFILE => Some(no_descriptors()),
        rustix::io::Errno::NFILE => {
            let text = "the system is out of file descriptors (ENFILE)";
            Some(ApiError::new(ErrorCode::Busy, text).hint("close programs, or raise the sysctl fs.file-max"))
        }
        _ => None,
    }
}

fn no_descriptors() -> ApiError {
    ApiError::new(ErrorCode::Busy, "the daemon is out of file descriptors (EMFILE)")
        .hint("raise the limit (`ulimit -n`) and run `caliban daemon restart`; running agents live on")
}

/// A failure of the store, as the answer to the request that needed it.
fn store_refusal(error: &StoreError) -> ApiError {
    let (code, hint) = match error {
        StoreError::Full(_) => {
            (ErrorCode::DiskFull, "make room and try again; running agents are not touched")
        }
        // Clients ask the next daemon by themselves.
        StoreError::Replaced(_) => (ErrorCode::Stopping, "ask again; running agents are not touched"),
        _ => (ErrorCode::Store, "nothing was acknowledged; `caliban daemon logs` may say more"),
    };
    ApiError::new(code, error.to_string()).hint(hint)
}
