//! `caliban __worker`: the foreground agent, in the background.
//!
//! Started by the shim with the environment of whoever asked for the agent. Composes exactly as print mode does, works on
//! the spec's prompt and serves the conversation on a socket of its own. What others need to know about it is in
//! `status.json`; its truth is the transcript, so it can be killed at any moment and resumed.
//!
//! Deliberately absent: a handler for TERM. An orderly end would have to cancel the turn: a parked question would be
//! answered with no, and the model would read of cancelled calls where "interrupted, outcome unknown" is the truth. What
//! is recorded is with the kernel already, and the shim ends the tree.

mod isolation;
mod notify;
mod resume_messages;
mod rights_file;
mod serve;
mod status;

use std::{
    ffi::OsString,
    io::Read as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use caliban_acp_host::{Clients, SessionHost, Sessions};
use caliban_agent::{
    Agent, Attendance, EarlierAnswers, TurnCount,
    blueprint::WantedAgent,
    choices::{Choices, ChosenNow},
    event::{Author, Outcome},
    transcript,
};
use caliban_contract::{HandedOver, limits::RaisedLimits};
use caliban_contract::{
    records::EndNotice,
    records::{self, WorkerStatus},
};
use caliban_core::{
    message::Message,
    redact::{self, Redactor},
    spec::{AfterTurn, SpawnSpec},
};
use caliban_tools::{JobInfo, JobState, Workspace};
use tokio_util::sync::CancellationToken;

use crate::{
    broker::{self, Farewell, Identity, Postman, Settled},
    commands::{Forks, SessionCommands},
    compose::{self, ComposeRequest, Composition, chain, compose},
    report::{Failure, Result},
    settings::{
        Environment, Files, Layer, Settings, load_files, load_with,
        provider::OutagePatience,
        tool_environment::{Breadth, secrets, tool_environment},
    },
};
use notify::{News, Notifier};
use status::{Mailbox, StatusFile};

/// The most that the daemon says of an end.
const NOTICE_CAP: u64 = 64 * 1024;

/// How soon to look again whether the host has let go of a turn that has ended.
const SETTLING: Duration = Duration::from_millis(5);

/// How often an idle agent looks whether its jobs run and whether somebody is attached.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// What the shim says.
#[derive(Debug)]
struct ShimOrder {
    directory: PathBuf,
    nonce: String,
    socket: PathBuf,
}

/// How the worker ends.
enum WorkerEnd {
    /// For good; the status says how.
    Finished,
    /// It leaves memory, and wants to be woken.
    Hibernated,
}

/// Runs the mode.
pub(crate) fn worker_main(args: &[OsString], environment: Environment) -> ExitCode {
    let order = match ShimOrder::parse(args) {
        Ok(order) => order,
        Err(problem) => {
            Failure::usage(problem).show();
            return ExitCode::from(2);
        }
    };
    match crate::run_agents(work(&order, environment)) {
        Ok(WorkerEnd::Finished) => ExitCode::SUCCESS,
        Ok(WorkerEnd::Hibernated) => ExitCode::from(u8::try_from(records::HIBERNATED).unwrap_or(u8::MAX)),
        Err(failure) => {
            // Also in worker.log, for whoever looks there.
            failure.show();
            ExitCode::FAILURE
        }
    }
}

impl ShimOrder {
    fn parse(args: &[OsString]) -> Result<Self, String> {
        let (mut directory, mut nonce, mut socket) = (None, None, None);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--nonce") => nonce = args.next().and_then(|value| value.to_str()).map(str::to_owned),
                Some("--socket") => socket = args.next().map(PathBuf::from),
                _ => directory = Some(PathBuf::from(arg)),
            }
        }
        Ok(Self {
            directory: directory.ok_or("the worker is started by the shim; no directory was given")?,
            nonce: nonce.ok_or("no --nonce was given")?,
            socket: socket.ok_or("no --socket was given")?,
        })
    }
}

async fn work(order: &ShimOrder, environment: Environment) -> Result<WorkerEnd> {
    let waking = Waking::of(&order.directory, &order.nonce);
    let mut status = StatusFile::new(&order.directory, &order.nonce);
    let (environment, unread) = match handed(&order.socket) {
        Ok(handover) => (environment.handed(handover), None),
        Err(failure) => (environment, Some(failure)),
    };
    let ran = match unread {
        None => run(order, environment.clone(), waking, &mut status).await,
        Some(failure) => Err(failure),
    };
    match ran {
        Ok(end) => Ok(end),
        Err(failure) => {
            let failure = status.without_secrets(failure);
            status.failed(&failure).await;
            tell_outside(environment, &order.directory, News::Failed, status.ending_text()).await;
            Err(failure)
        }
    }
}

/// What the agent that listens there was handed; nothing when it was nothing, or went with a reboot. What is there and cannot be
/// read may name secrets that must not be written down.
fn handed(socket: &Path) -> Result<HandedOver> {
    let path = caliban_contract::secrets_file(socket);
    match HandedOver::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(HandedOver::default()),
        Err(error) => Err(Failure::new(format!("the secrets in {} cannot be read: {error}", path.display()))
            .hint("caliban resume hands over new ones")),
        Ok(handover) => Ok(handover),
    }
}

/// Runs the mode of [`caliban_contract::modes::NOTIFY`]: tells of an end that only the daemon saw.
pub(crate) fn notify_main(environment: Environment) -> ExitCode {
    let notice = serde_json::from_reader(std::io::stdin().take(NOTICE_CAP));
    let Ok(EndNotice { directory, event, text, handover }) = notice else { return ExitCode::from(2) };
    // What it cannot read the agent's own end told of: here it is only looked for in what is told.
    let handover = handover.and_then(|path| HandedOver::read(&path).ok()).unwrap_or_default();
    let environment = environment.handed(handover);
    let (Some(news), Ok(runtime)) = (News::named(&event), crate::runtime()) else { return ExitCode::from(2) };
    runtime.block_on(tell_outside(environment, &directory, news, &text));
    ExitCode::SUCCESS
}

/// Tells without an agent, because it could not begin or is gone, as far as the settings can be read.
async fn tell_outside(environment: Environment, directory: &Path, news: News, text: &str) {
    let asked = Files::handed(&environment);
    let Ok(spec) = read_spec(directory) else { return };
    let stands = isolation::ground(&spec).0.to_owned();
    let now = crate::settings::load(&environment, &stands, Layer::default());
    let then = |_| asked.and_then(|asked| load_files(&environment, &stands, Layer::default(), asked).ok());
    let Some(loaded) = now.map_or_else(then, Some) else { return };
    let env = tool_environment(&environment, &loaded.settings, Breadth::Listed);
    let id = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let label = spec.label.as_ref().map(ToString::to_string).unwrap_or_default();
    let Ok(helper) = crate::compose::own_program() else { return };
    let Ok(fence) = compose::program_fence(&loaded, &env, loaded.settings.fence.notify, None) else { return };
    let notify = loaded.settings.fleet.notify.clone();
    let mut notifier = Notifier::bare(notify, id, label, env, stands, helper).within(fence);
    notifier.tell(news, text);
    notifier.finish().await;
}

async fn run(
    order: &ShimOrder,
    environment: Environment,
    waking: Waking,
    status: &mut StatusFile,
) -> Result<WorkerEnd> {
    status.write();
    let spec = read_spec(&order.directory)?;
    if let Some(what) = caliban_fleet::damaged_transcript::found(&order.directory, status.turns_before()) {
        return Err(Failure::new(format!("it cannot go on where it was: {what}"))
            .hint("caliban resume --from-scratch begins its task anew"));
    }
    let asked = Files::handed(&environment);
    status.redact(Redactor::new(secrets(&environment, &Settings::default())));
    take_over(&spec, &order.directory)?;
    let ground = isolation::ground(&spec).0;
    let files = files(asked, waking, &environment, ground, status);
    let loaded = load_with(&environment, ground, Layer::default(), files.clone())?;
    let redactor = Redactor::new(secrets(&environment, &loaded.settings));
    let told = redactor.clone();
    crate::report::tell_panics(move || told.clone(), "caliban resume goes on after its last step");
    status.redact(redactor);
    // Held to the end: as long as we work in it, nobody removes it.
    let worktree = isolation::worktree(&spec, &order.directory, &loaded, &environment, status).await?;
    let path = worktree.as_ref().map(|worktree| worktree.created.path.as_path());
    let (agent, composition, identity) = prepare(order, &spec, path, (&environment, files), status).await?;
    // Others may have spoken to it before it heard its task: that comes first all the same.
    let is_new = agent.conversation().messages().is_empty();
    // Before anything begins: the first request to the model has it, or a correction would come after the work.
    let told = resume_messages::told(&order.directory, &order.nonce, &environment);
    resume_messages::say(&agent.handle(), &order.directory, told).await?;
    let is_unfinished = !is_new
        && match waking {
            Waking::First | Waking::Resumed => agent.has_unfinished_turn(),
            // Its turns had all ended; one that was cancelled stays so until somebody speaks.
            Waking::Asleep => agent.conversation().is_turn_open() || agent.handle().is_turn_wanted(),
        };
    let (workspace, redactor) = (agent.kit().workspace.clone(), agent.kit().shared.redactor.clone());
    let ledger = agent.kit().shared.ledger.clone();
    let mut notifier = Notifier::new(composition.fleet.notify.clone(), &agent, &composition.workspace);
    let profile = loaded.settings.fence.notify;
    let fence = compose::program_fence(&loaded, &composition.workspace.env, profile, path)?;
    notifier = notifier.within(fence);
    let commands = SessionCommands::of(&environment, &composition)(&agent, Forks::Not);
    let host = SessionHost::start_with(Box::new(agent), Clients::Many, Some(commands));
    let sessions = Arc::new(Sessions::only(host.clone()));
    let server = serve::WorkerServer::listen(&order.socket, &order.directory, sessions, redactor)?;
    let task = is_new.then(|| redact::unveil(&spec.prompt, &environment.handover().task));
    if is_unfinished && host.go_on().is_err() {
        return Err(Failure::new("the session was closed before it began"));
    }
    if let Some(text) = task {
        let mut message = Message::user(composition.prompt(text).await);
        message.blocks.splice(0..0, host.bring(spec.mentions.iter().map(String::as_str)));
        host.prompt(message, Author::User).await.map_err(|error| Failure::new(chain(&error)))?;
    }
    let idle = Duration::from_secs(u64::from(composition.fleet.idle_minutes.get()) * 60);
    let mut postman = identity.map(|identity| Postman::start(identity, host.clone()));
    let stay = Stay { after_turn: spec.after_turn, idle, workspace: &workspace };
    let end = watch(&host, status, &mut notifier, stay, &server, postman.as_mut()).await;
    if let Some(postman) = postman {
        postman
            .finish(if matches!(end, WorkerEnd::Finished) { Farewell::Leave } else { Farewell::Stay })
            .await;
    }
    // No new clients; those that are attached see the end of the session, and leave.
    tokio::join!(server.finish(), host.close(), notifier.finish());
    if let Some(ledger) = ledger {
        ledger.leave().await;
    }
    Ok(end)
}

/// A conversation that was handed over is its own from its first start on.
fn take_over(spec: &SpawnSpec, directory: &Path) -> Result<()> {
    let Some(handover) = &spec.conversation else { return Ok(()) };
    if directory.join(transcript::FILE_NAME).exists() {
        return Ok(());
    }
    let id = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    caliban_agent::fork::take_over(handover, directory, id).map_err(|error| {
        Failure::new(format!(
            "the conversation of {} cannot be taken over: {error}",
            handover.session.display()
        ))
        .hint("is the session still there? `caliban sessions list`")
    })
}

/// The settings files of a run; none for those of now. The first run has those of the moment when the agent was asked for.
/// A later one was asked for by somebody else: it has those of now, or the first ones where these cannot be used.
fn files(
    asked: Option<Files>,
    waking: Waking,
    environment: &Environment,
    cwd: &Path,
    status: &StatusFile,
) -> Option<Files> {
    let asked = asked?;
    if waking == Waking::First {
        return Some(asked);
    }
    let broken = crate::settings::load(environment, cwd, Layer::default()).err()?;
    status.note(&format!("it goes on with the settings of its first start: {broken}"));
    Some(asked)
}

/// How this run came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waking {
    /// It is new.
    First,
    /// It left memory by itself, and somebody wants it.
    Asleep,
    /// It goes on after whatever ended it.
    Resumed,
}

impl Waking {
    fn of(directory: &Path, nonce: &str) -> Self {
        let last: Option<WorkerStatus> = records::read(directory, records::STATUS);
        match last {
            // The daemon writes the order for every run but the first; what the last run left may have been put aside.
            None if resume_messages::order(directory, nonce).is_some() => Self::Resumed,
            None => Self::First,
            Some(last) if last.hibernated => Self::Asleep,
            Some(_) => Self::Resumed,
        }
    }
}

/// How long an agent stays in memory.
struct Stay<'a> {
    after_turn: AfterTurn,
    /// How long it waits for a message.
    idle: Duration,
    /// Where its background jobs are.
    workspace: &'a Workspace,
}

impl Stay<'_> {
    /// The background jobs that run. They live as long as the process does, so it stays for them.
    fn jobs(&self) -> Vec<JobInfo> {
        self.workspace.jobs().into_iter().filter(|job| job.state == JobState::Running).collect()
    }
}

/// Everything up to an agent that can work.
async fn prepare(
    order: &ShimOrder,
    spec: &SpawnSpec,
    worktree: Option<&Path>,
    (environment, files): (&Environment, Option<Files>),
    status: &mut StatusFile,
) -> Result<(Agent, Composition, Option<Identity>)> {
    let mut now = spec.clone();
    RaisedLimits::read(&order.directory).apply_to(&mut now);
    let setup = now.setup;
    let id = order.directory.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let (cwd, missing) = isolation::ground(spec);
    let request = ComposeRequest {
        worktree,
        missing,
        patience: OutagePatience::Long,
        after_turn: spec.after_turn,
        fleet_agent: id.parse().ok().map(|id| (id, spec.depth)),
        files,
        ..ComposeRequest::here(cwd, &setup, Attendance::Somebody)
    };
    let mut composition = compose(environment, request).await?;
    status.redact(composition.blueprint.redactor.clone());
    for note in &composition.notes {
        status.note(note);
    }
    let identity = Identity::of(spec, &id, &order.directory, environment).await?;
    let mut wanted = composition.wanted(id, order.directory.clone());
    wanted.label = spec.label.as_ref().map(ToString::to_string);
    wanted.earlier_answers = EarlierAnswers::Kept;
    wanted.turn_count = match spec.after_turn {
        // One task, however often it is resumed.
        AfterTurn::End => TurnCount::Conversation,
        // Each message is a task of its own, as in the foreground.
        AfterTurn::Stay => TurnCount::Prompt,
    };
    if let Some(identity) = &identity {
        wanted.own_tools = broker::tools(identity, &composition.blueprint.redactor);
        wanted.instructions = Some(identity.instructions());
    }
    match begin(&mut composition, wanted).await {
        Ok(agent) => {
            status.agent(agent.kit(), composition.blueprint.budget);
            Ok((agent, composition, identity))
        }
        Err(failure) => {
            if let Some(identity) = &identity {
                identity.leave().await;
            }
            Err(failure)
        }
    }
}

/// The agent, new or as its transcript has it.
async fn begin(composition: &mut Composition, wanted: WantedAgent) -> Result<Agent> {
    let is_old = wanted.directory.join(transcript::FILE_NAME).exists();
    if is_old {
        // What a person has chosen at its socket is newer than the spec.
        Choices::read(&wanted.directory).take_up(&mut composition.blueprint, ChosenNow::default(), None);
    }
    let kit = composition.kit(wanted)?;
    let agent = if is_old { Agent::resume(kit).await } else { Agent::new(kit).await };
    agent.map_err(|error| Failure::new(chain(&error)))
}

fn read_spec(directory: &Path) -> Result<SpawnSpec> {
    let path = directory.join(records::SPEC);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    SpawnSpec::from_json(&text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// Keeps the status true until the agent has ended or leaves memory. An agent that gets mail does not leave memory:
/// nobody else would see that mail has come.
async fn watch(
    host: &SessionHost,
    status: &mut StatusFile,
    notifier: &mut Notifier,
    stay: Stay<'_>,
    server: &serve::WorkerServer,
    mut postman: Option<&mut Postman>,
) -> WorkerEnd {
    let no_mail = postman.as_ref().map_or_else(
        || {
            let none = CancellationToken::new();
            none.cancel();
            none
        },
        |postman| postman.over().clone(),
    );
    let feed = host.handle().feed().clone();
    let mut cursor = caliban_agent::feed::Cursor::default();
    // Since when it waits for a message.
    let mut idle_since: Option<Instant> = None;
    // Whether it has worked since it was started.
    let mut is_news = host.is_running();
    loop {
        while let Some(entry) = feed.next(&mut cursor) {
            status.take(&entry);
        }
        if let Some(reason) = status.broken() {
            let failure = Failure::new(format!("its transcript cannot be written: {reason}"))
                .hint("caliban resume goes on after the last record that is on the disk");
            status.failed(&failure).await;
            notifier.tell(News::Failed, status.ending_text());
            return WorkerEnd::Finished;
        }
        status.asks(&host.handle().asks().open(), |ask| host.listed(ask));
        let is_over = status.is_turn_over() && !host.is_running();
        // One that waits for messages ends, too, where no message helps or a person has to know.
        let is_stuck = matches!(
            status.outcome(),
            Some(Outcome::Failed { .. } | Outcome::TurnLimit { .. } | Outcome::Budget { .. })
        );
        let is_last = stay.after_turn == AfterTurn::End || is_stuck;
        // What is in its mailbox when it would end is heard first.
        let is_kept = match (&mut postman, status.outcome()) {
            (Some(postman), Some(Outcome::Done)) if is_over && is_last => {
                postman.settle().await == Settled::AtWork
            }
            _ => false,
        };
        // From here on it takes no message: none is acknowledged and then left unheard.
        if is_over && is_last && !is_kept && host.retire().is_ok() {
            while let Some(entry) = feed.next(&mut cursor) {
                status.take(&entry);
            }
            // Nothing of an agent outlives it; what that ends is said.
            for job in stay.jobs() {
                let command = caliban_core::inert::line(&job.command);
                status.note(&format!("a command in the background ends with the agent: {command}"));
            }
            let is_done = matches!(status.outcome(), Some(Outcome::Done));
            status.ended().await;
            for notice in status.new_notices() {
                notifier.tell(News::Budget, &notice);
            }
            notifier.tell(if is_done { News::Done } else { News::Failed }, status.ending_text());
            return WorkerEnd::Finished;
        }
        if let Some(postman) = &mut postman {
            postman.go_on();
        }
        let is_idle = is_over && !is_last;
        if is_idle {
            let mailbox = if no_mail.is_cancelled() { Mailbox::None } else { Mailbox::Open };
            status.idle(&stay.jobs(), mailbox);
            if idle_since.is_none() && is_news {
                notifier.tell(News::Idle, status.ending_text());
            }
            idle_since.get_or_insert_with(Instant::now);
        } else {
            // One that is woken and finds nothing to do has told it before.
            is_news |= host.is_running();
            idle_since = None;
        }
        status.write();
        host.are_listed(status.listed_asks());
        for ask in status.new_asks() {
            notifier.tell(News::NeedsYou, &ask);
        }
        for notice in status.new_notices() {
            notifier.tell(News::Budget, &notice);
        }
        tokio::select! {
            entry = feed.wait(&mut cursor) => match entry {
                Some(entry) => status.take(&entry),
                None => {
                    let crash = Failure::new("the agent has crashed").hint("its worker.log may say why");
                    status.failed(&crash).await;
                    return WorkerEnd::Finished;
                }
            },
            // The record of a turn's end comes a moment before the host has let go of the turn, and a message may be
            // on its way.
            () = tokio::time::sleep(SETTLING), if status.is_turn_over() && !is_idle => {}
            () = no_mail.cancelled(), if !no_mail.is_cancelled() => {}
            // Clients come and go and jobs end without a word in the feed: looked at again soon.
            () = look(idle_since, &stay), if is_idle => {
                let is_time = idle_since.is_some_and(|since| since.elapsed() >= stay.idle);
                let is_needed = server.has_clients() || !stay.jobs().is_empty() || !no_mail.is_cancelled();
                if is_time && !is_needed && status.is_room_to_sleep() && host.retire().is_ok() {
                    status.hibernated().await;
                    return WorkerEnd::Hibernated;
                }
            }
        }
    }
}

/// Ends when an idle agent is to be looked at: when its time is up; and soon, when something may end that is not told.
async fn look(since: Option<Instant>, stay: &Stay<'_>) {
    let left = since.map_or(stay.idle, |since| stay.idle.saturating_sub(since.elapsed()));
    let is_soon = left.is_zero() || !stay.jobs().is_empty();
    tokio::time::sleep(if is_soon { IDLE_LOOK } else { left }).await;
}
