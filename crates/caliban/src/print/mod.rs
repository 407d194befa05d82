//! Print mode: one prompt, one answer, an exit code.
//!
//! stdout is data, stderr is talk. On a terminal the answer streams as it comes in; into a pipe goes the final answer
//! alone, so that a script gets exactly that.

mod ask;
mod json;
mod schema;
mod text;

use std::{
    io::{IsTerminal as _, Read as _},
    path::Path,
};

use caliban_agent::{
    Agent, Attendance, TurnReport,
    event::{Author, Outcome},
    feed::{Cursor, FeedEntry},
};
use caliban_core::{message::Message, setup::AgentSetup, wait::Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::{Cli, run::OutputFormat},
    compose::{ComposeRequest, Composition, WantedConversation, compose},
    report::{self, Code, Failure, Result},
    session_places::Sessions,
    settings::Environment,
};

/// More than this on stdin is not a prompt.
const MAX_STDIN_BYTES: u64 = 64 * 1024 * 1024;

/// How long a pipe may be silent when the prompt is on the command line.
const STDIN_PATIENCE: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };

/// What print mode shows, as it happens and at the end.
trait Printer {
    /// Something happened.
    fn entry(&mut self, entry: &FeedEntry) -> std::io::Result<()>;
    /// The turn is over.
    fn end(&mut self, report: &TurnReport) -> std::io::Result<()>;
}

/// Runs the prompt of this command line.
pub(crate) async fn print(cli: &Cli, environment: &Environment, cwd: &Path) -> Result<Code> {
    cli.agent.check_dirs(cwd)?;
    let prompt = prompt(cli)?;
    // Without -p there is a person: they can be asked, and the run is theirs to watch.
    let is_attended = !cli.run.is_print()
        && cli.run.output_format() == OutputFormat::Text
        && std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal();
    let attendance = if is_attended { Attendance::Somebody } else { Attendance::Nobody };
    let setup =
        AgentSetup { system_prompt_append: cli.run.system_prompt_append.clone(), ..cli.agent.setup(cwd) };
    let form = cli.run.output_schema.as_ref().map(|path| schema::form(&cwd.join(path))).transpose()?;
    let mut composition = compose(environment, ComposeRequest::here(cwd, &setup, attendance)).await?;
    composition.form = form;
    for note in &composition.notes {
        report::note(note);
    }
    let prompt = match prompt {
        Some(prompt) => Some(composition.prompt(prompt).await),
        None => None,
    };
    let agent = open(cli, composition).await?;
    if prompt.is_none() && !agent.has_unfinished_turn() {
        agent.close().await;
        return Err(nothing_to_do());
    }
    let mut message = prompt.map(Message::user);
    if let (Some(message), Some(words)) = (&mut message, cli.run.prompt()) {
        let along = agent.kit().mentions().along(words);
        message.blocks.splice(0..0, along);
    }
    drive(cli, agent, message).await
}

/// The words of the command line, with what comes on stdin behind them.
fn prompt(cli: &Cli) -> Result<Option<String>> {
    let mut prompt = cli.run.prompt().map(str::to_owned).filter(|prompt| !prompt.trim().is_empty());
    if cli.run.is_print() {
        prompt = with_stdin(prompt)?;
    }
    let goes_on = cli.run.continue_last || cli.run.resume.is_some();
    if prompt.is_none() && !goes_on {
        return Err(nothing_to_do());
    }
    Ok(prompt)
}

/// A prompt, with what comes on stdin behind it.
pub(crate) fn with_stdin(mut prompt: Option<String>) -> Result<Option<String>> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() && (prompt.is_none() || is_something_coming(&stdin)) {
        let mut bytes = Vec::new();
        stdin
            .lock()
            .take(MAX_STDIN_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::new(format!("cannot read stdin: {error}")))?;
        if bytes.len() as u64 > MAX_STDIN_BYTES {
            return Err(Failure::usage(format!("stdin has more than {MAX_STDIN_BYTES} bytes"))
                .hint("put it into a file and name that in the prompt"));
        }
        let piped = String::from_utf8_lossy(&bytes);
        if !piped.trim().is_empty() {
            prompt = Some(match prompt {
                Some(prompt) => format!("{prompt}\n\n{}", piped.trim_end()),
                None => piped.into_owned(),
            });
        }
    }
    Ok(prompt)
}

/// Whether stdin has something, or has ended. A pipe that somebody left open and never writes to must not hang a run
/// that has its prompt already.
fn is_something_coming(stdin: &std::io::Stdin) -> bool {
    let mut waiting = [PollFd::new(stdin, PollFlags::IN)];
    let ready = poll(&mut waiting, Some(&STDIN_PATIENCE));
    if ready == Ok(0) {
        report::note("nothing came on stdin: going on without it (redirect it with </dev/null)");
        return false;
    }
    true
}

fn nothing_to_do() -> Failure {
    Failure::usage("there is no prompt").hint("say what to do: caliban -p \"fix the failing test\"")
}

/// A new session, or the one that is to be gone on with.
async fn open(cli: &Cli, composition: Composition) -> Result<Agent> {
    let sessions = Sessions::new(composition.repo_dir.clone());
    let wanted = sessions.wanted(&cli.run, "start one: caliban -p \"…\"")?;
    let which = wanted.map_or(WantedConversation::New, WantedConversation::Old);
    composition.open(which, None).await
}

async fn drive(cli: &Cli, mut agent: Agent, prompt: Option<Message>) -> Result<Code> {
    let mut printer = printer(cli, &agent);
    let handle = agent.handle();
    let cancel = CancellationToken::new();
    let _watching = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(interrupts(cancel.clone())));
    let asker =
        (agent.kit().shared.attendance == Attendance::Somebody).then(|| ask::Asker::start(handle.clone()));
    let mut cursor = handle.feed().end();
    let mut disk = Disk::default();
    let report = {
        let work = async {
            match prompt {
                Some(prompt) => agent.prompt(prompt, Author::User, &cancel).await,
                None => agent.go_on(&cancel).await,
            }
        };
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                entry = handle.feed().wait(&mut cursor) => {
                    if let Some(entry) = entry.filter(|entry| disk.has_room_for(entry)) {
                        show(printer.as_mut(), &entry);
                        if let Some(asker) = &asker {
                            asker.entry(&entry);
                        }
                    }
                }
                report = &mut work => break report,
            }
        }
    };
    drain(printer.as_mut(), handle.feed(), &mut cursor);
    let ledger = agent.kit().shared.ledger.clone();
    agent.close().await;
    if let Some(ledger) = ledger {
        ledger.leave().await;
    }
    // A reader that is gone (`| head -1`) does not make the work a failure.
    let _gone = printer.end(&report);
    Ok(code(&report))
}

/// Whether the disk is full or the ledger gone: said once, in every format, since nothing else is seen of a run that waits for room.
#[derive(Default)]
struct Disk {
    /// What is said when it is over.
    then: Option<&'static str>,
}

impl Disk {
    /// Whether this is something else than that; what is recorded shows that there is room again.
    fn has_room_for(&mut self, entry: &FeedEntry) -> bool {
        match entry {
            FeedEntry::Waiting(wait @ (Wait::DiskFull { .. } | Wait::Ledger { .. })) => {
                let (what, then) = match wait {
                    Wait::DiskFull { .. } => (
                        "waiting for room; nothing is lost, and it goes on by itself",
                        "there is room again: going on",
                    ),
                    _ => ("nothing is sent before", "the ledger is whole again: going on"),
                };
                if self.then.replace(then).is_none() {
                    report::note(&format!(
                        "{wait}: {what}\nCtrl-C twice ends it; `caliban --continue` goes on later"
                    ));
                }
                false
            }
            FeedEntry::Record(_) => {
                if let Some(then) = self.then.take() {
                    report::note(then);
                }
                true
            }
            _ => true,
        }
    }
}

fn drain(printer: &mut dyn Printer, feed: &caliban_agent::feed::Feed, cursor: &mut Cursor) {
    while let Some(entry) = feed.next(cursor) {
        show(printer, &entry);
    }
}

fn show(printer: &mut dyn Printer, entry: &FeedEntry) {
    let _gone = printer.entry(entry);
}

fn printer(cli: &Cli, agent: &Agent) -> Box<dyn Printer> {
    match cli.run.output_format() {
        OutputFormat::Text => Box::new(text::TextPrinter::new(cli.run.verbose)),
        OutputFormat::Json => Box::new(json::Json::new(agent.kit())),
        OutputFormat::StreamJson => Box::new(json::StreamJson::new(agent.kit())),
    }
}

/// The exit code of a turn.
fn code(report: &TurnReport) -> Code {
    match &report.outcome {
        Outcome::Done if report.refused.is_empty() => Code::Done,
        Outcome::Done => Code::Refused,
        Outcome::Failed { .. } => Code::Failed,
        Outcome::TurnLimit { .. } | Outcome::Budget { .. } => Code::Limit,
        Outcome::Cancelled => Code::Interrupted,
    }
}

/// The first signal cancels, which ends tools and requests in order; a second one is obeyed at once by the default
/// handler being gone only for as long as the program takes to end.
async fn interrupts(cancel: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    cancel.cancel();
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    report::give_up();
}
