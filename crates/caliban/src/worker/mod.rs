//! `caliban __worker`: the foreground agent, in the background.
//!
//! Started by the shim with the environment of whoever asked for the agent. Composes exactly as print mode does, works on
//! the spec's prompt and serves the conversation on a socket of its own. What others need to know about it is in
//! `status.json`; its truth is the transcript, so it can be killed at any moment and resumed.

mod isolation;
mod notify;
mod serve;
mod status;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use caliban_acp::{Clients, SessionHost, Sessions};
use caliban_agent::{
    Agent, Attendance,
    blueprint::{Kin, Wanted, WorkspaceSource},
    event::{Author, Outcome},
    transcript,
};
use caliban_core::{
    message::Message,
    spec::{AfterTurn, SpawnSpec},
};
use caliban_supervisor::records::{self, ResumeOrder};

use crate::{
    compose::{Composition, Request, chain, compose},
    report::Failure,
    settings::Environment,
};
use status::Status;

/// The mode's name.
pub(crate) const WORKER_MODE: &str = "__worker";

/// How long it is waited between two looks whether a turn that has ended is over for the host, too.
const SETTLE: Duration = Duration::from_millis(2);

/// How soon to look again whether the host has let go of a turn that has ended.
const SETTLING: Duration = Duration::from_millis(5);

/// What the shim says.
#[derive(Debug)]
struct Order {
    directory: PathBuf,
    nonce: String,
    socket: PathBuf,
}

/// How the worker ends.
enum End {
    /// For good; the status says how.
    Finished,
    /// It leaves memory, and wants to be woken.
    Hibernated,
}

/// Runs the mode.
pub(crate) fn worker_main(args: &[OsString]) -> ExitCode {
    let order = match Order::parse(args) {
        Ok(order) => order,
        Err(problem) => {
            Failure::usage(problem).show();
            return ExitCode::from(2);
        }
    };
    let runtime = match crate::runtime() {
        Ok(runtime) => runtime,
        Err(failure) => {
            failure.show();
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(work(&order)) {
        Ok(End::Finished) => ExitCode::SUCCESS,
        Ok(End::Hibernated) => ExitCode::from(u8::try_from(records::HIBERNATED).unwrap_or(u8::MAX)),
        Err(failure) => {
            // Also in worker.log, for whoever looks there.
            failure.show();
            ExitCode::FAILURE
        }
    }
}

impl Order {
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

async fn work(order: &Order) -> Result<End, Failure> {
    let mut status = Status::new(&order.directory, &order.nonce);
    status.write();
    let prepared = prepare(order, &mut status).await;
    let (agent, spec, composition) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => {
            status.failed(&failure);
            return Err(failure);
        }
    };
    let resume: Option<ResumeOrder> = records::read(&order.directory, records::RESUME);
    let message = resume.filter(|resume| resume.nonce == order.nonce).and_then(|resume| resume.prompt);
    let is_new = agent.conversation().messages().is_empty() && agent.conversation().queue().is_empty();
    let is_unfinished = agent.has_unfinished_turn();
    let notifier = notify::Notifier::new(composition.fleet.notify.clone(), &agent, &composition.workspace);
    let host = SessionHost::start(agent, Clients::Many);
    let server = serve::Server::listen(&order.socket, Arc::new(Sessions::only(host.clone())))?;
    let first = match (message, is_new) {
        (Some(message), _) => Some(message),
        (None, true) => Some(spec.prompt.clone()),
        (None, false) => None,
    };
    if is_unfinished && host.go_on().is_err() {
        return Err(Failure::new("the session was closed before it began"));
    }
    if let Some(text) = first {
        host.prompt(Message::user(text), Author::User).await.map_err(|error| Failure::new(chain(&error)))?;
    }
    let idle = Duration::from_secs(u64::from(composition.fleet.idle_minutes.get()) * 60);
    let end = watch(&host, &mut status, &notifier, spec.after_turn, idle, &server).await;
    // No new clients; those that are attached see the end of the session, and leave.
    tokio::join!(server.finish(), host.close());
    Ok(end)
}

/// Everything up to an agent that can work.
async fn prepare(order: &Order, status: &mut Status) -> Result<(Agent, SpawnSpec, Composition), Failure> {
    let spec = read_spec(&order.directory)?;
    let environment = Environment::of_process();
    let flags = crate::fleet::flags::of(&spec);
    let id = order.directory.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let worktree = isolation::worktree(&spec, &id, &environment, status).await?;
    let request = Request {
        cwd: &spec.cwd,
        worktree: worktree.as_deref(),
        flags: &flags,
        append: crate::fleet::flags::append_of(&spec),
        attendance: Attendance::Somebody,
        mcp_servers: &[],
        fleet_agent: id.parse().ok().map(|id| (id, spec.depth)),
    };
    let mut composition = compose(&environment, request).await?;
    for note in &composition.notes {
        crate::report::note(note);
    }
    if let Some(hooks) = crate::fleet::flags::hooks_of(&spec) {
        composition.blueprint.hooks.commands = hooks;
    }
    let definition = match &spec.agent_type {
        Some(name) => Some(
            composition
                .blueprint
                .definitions
                .iter()
                .find(|definition| definition.name == *name)
                .cloned()
                .ok_or_else(|| {
                    Failure::new(format!("there is no agent type {name:?}"))
                        .hint("`caliban agents types` lists them")
                })?,
        ),
        None => None,
    };
    if let (None, Some(model)) = (&spec.model, definition.as_ref().and_then(|it| it.model.clone())) {
        composition.blueprint.model = model;
    }
    let wanted = Wanted {
        session: id,
        label: spec.label.as_ref().map(ToString::to_string),
        workspace: WorkspaceSource::New(composition.workspace.clone()),
        directory: order.directory.clone(),
        kin: Kin::Independent,
        tools: spec.tools.clone().or_else(|| definition.as_ref().and_then(|it| it.tools.clone())),
        role: definition.map(|it| it.role),
    };
    let kit = composition.kit(wanted)?;
    let is_old = order.directory.join(transcript::FILE_NAME).exists();
    let agent = if is_old { Agent::resume(kit).await } else { Agent::new(kit).await };
    let agent = agent.map_err(|error| Failure::new(chain(&error)))?;
    status.model(&agent.kit().model);
    Ok((agent, spec, composition))
}

fn read_spec(directory: &Path) -> Result<SpawnSpec, Failure> {
    let path = directory.join(records::SPEC);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    SpawnSpec::from_json(&text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// Keeps the status true until the agent has ended or leaves memory.
async fn watch(
    host: &SessionHost,
    status: &mut Status,
    notifier: &notify::Notifier,
    after_turn: AfterTurn,
    idle: Duration,
    server: &serve::Server,
) -> End {
    let feed = host.handle().feed().clone();
    let mut cursor = caliban_agent::feed::Cursor::default();
    loop {
        while let Some(entry) = feed.next(&mut cursor) {
            status.take(&entry);
        }
        status.asks(&host.handle().asks().open());
        if let Some(ask) = status.new_ask() {
            notifier.needs_you(&ask).await;
        }
        let is_over = status.is_turn_over() && !host.is_running();
        if is_over {
            let outcome = status.outcome();
            if after_turn == AfterTurn::End || matches!(outcome, Some(Outcome::Failed { .. })) {
                status.ended();
                notifier.ended(status.ending_text(), matches!(outcome, Some(Outcome::Done))).await;
                return End::Finished;
            }
            status.idle();
        }
        status.write();
        tokio::select! {
            entry = feed.wait(&mut cursor) => match entry {
                Some(entry) => status.take(&entry),
                None => return End::Finished,
            },
            // The host knows of the end of a turn a moment after the feed does, and says nothing then.
            () = tokio::time::sleep(SETTLE), if status.is_turn_over() && !is_over => {}
            // The record of a turn's end comes a moment before the host has let go of the turn.
            () = tokio::time::sleep(SETTLING), if status.is_turn_over() && !is_over => {}
            () = tokio::time::sleep(idle), if is_over && !server.has_clients() => {
                status.hibernated();
                return End::Hibernated;
            }
        }
    }
}
