//! `caliban attach`: an agent live, with its history first. What is typed steers it; leaving changes nothing for it.
//!
//! One that has ended is replayed from its transcript; one that waits for its start is waited for.

use std::{
    collections::VecDeque,
    io::{BufRead as _, IsTerminal as _, Write},
    time::{Duration, Instant},
};

use anstyle::Style;
use caliban_acp::{
    ClientEvent,
    client::{Question, Reply},
    v1::{ContentBlock, SessionUpdate},
};
use caliban_core::lifecycle::State;
use caliban_supervisor::{
    Client, ClientError,
    protocol::{AgentRow, ErrorCode, FleetEvent},
};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    Fleet,
    desk::{Desk, Taken},
    link,
    link::{Link, SEND},
    logs::{replay, verdict},
    row, say,
    screen::{Reader, Screen},
    worded,
};
use crate::{
    cli::fleet::AttachArgs,
    consent::Consent,
    report::{Code, Failure},
};

/// How long the daemon may take to see that a worker which hung up has ended.
const END_LIMIT: Duration = Duration::from_secs(30);

/// The same for one that hung up before we had seen anything; one that lives and does not talk is an error.
const UNSEEN_LIMIT: Duration = Duration::from_secs(10);

/// Lines that follow each other faster than this are pasted.
const PASTE_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// How long an agent may take to tell its history before it is said that it is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why the conversation on the screen is over.
enum Over {
    /// The person has left.
    Left,
    /// The agent has hung up.
    HungUp,
    /// It has hung up, or could not be reached, before it had told its history.
    Unseen(Failure),
}

pub(super) async fn attach(
    fleet: &Fleet<'_>,
    args: &AttachArgs,
    out: &mut dyn Write,
) -> Result<Code, Failure> {
    let mut client = fleet.client().await?;
    let mut agent = client.show(&args.agent.id).await.map_err(worded)?;
    let id = agent.id.to_string();
    let mut lines = typed();
    // What was typed before the agent could hear it.
    let mut early: VecDeque<String> = VecDeque::new();
    loop {
        if row::has_ended(agent.state) {
            replay(&agent, out)?;
            writeln!(out, "\n{}", verdict(&agent))?;
            early.extend(lines.iter_mut().flat_map(|lines| std::iter::from_fn(|| lines.try_recv().ok())));
            for line in early.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
                say(&format!("it has ended before it could hear this: {line}"));
            }
            say(&format!("it has ended; `caliban resume {id} --prompt \"…\"` lets it go on"));
            return Ok(Code::Done);
        }
        let socket = match fleet.wake(&mut client, &id).await {
            Ok(awake) => awake.socket,
            Err(ClientError::Refused(error)) if error.code == ErrorCode::Queued => {
                say(&format!("{}; waiting (Ctrl+C leaves)", row::doing(&agent, row::now_ms())));
                let begun = |row: &AgentRow| row.state != State::Spawning || row.queued_behind.is_none();
                let begun = {
                    let waiting = until(&client, &agent, begun);
                    tokio::pin!(waiting);
                    loop {
                        tokio::select! {
                            begun = &mut waiting => break Some(begun?),
                            line = next_line(&mut lines) => match line {
                                Some(line) => {
                                    say("it will hear that when it has started");
                                    early.push_back(line);
                                }
                                None => break None,
                            },
                        }
                    }
                };
                match begun {
                    Some(row) => agent = row,
                    None => {
                        say(&format!("agent {id} still waits for its start"));
                        if !early.is_empty() {
                            say("what you typed was not said to it");
                        }
                        return Ok(Code::Done);
                    }
                }
                continue;
            }
            // It ended in the meantime.
            Err(ClientError::Refused(error)) if error.code == ErrorCode::Ended => {
                agent = client.show(&id).await.map_err(worded)?;
                if row::has_ended(agent.state) {
                    continue;
                }
                return Err(worded(ClientError::Refused(error)));
            }
            Err(error) => return Err(worded(error)),
        };
        let over = match Link::open(&socket).await {
            Ok(link) => converse(link, &agent, (&mut early, &mut lines), out).await?,
            Err(unreached) => Over::Unseen(unreached.into()),
        };
        match over {
            Over::Left => {
                say(&format!("detached; agent {id} goes on"));
                return Ok(Code::Done);
            }
            Over::HungUp => {
                ended(&client, &agent, out).await?;
                return Ok(Code::Done);
            }
            // It ended while we came: what it did is in its files.
            Over::Unseen(failure) => {
                let over = until(&client, &agent, |row| row::has_ended(row.state) || row.hibernated);
                agent = tokio::time::timeout(UNSEEN_LIMIT, over).await.map_err(|_| failure)??;
            }
        }
    }
}

/// How an agent stands whose worker has hung up.
async fn ended(client: &Client, agent: &AgentRow, out: &mut dyn Write) -> Result<(), Failure> {
    let over = |row: &AgentRow| row::has_ended(row.state) || row.hibernated;
    match tokio::time::timeout(END_LIMIT, until(client, agent, over)).await {
        Ok(row) => writeln!(out, "{}", verdict(&row?))?,
        Err(_) => say("the agent has hung up; `caliban agents list` tells how it stands"),
    }
    Ok(())
}

/// Waits until the agent is so.
async fn until(
    client: &Client,
    agent: &AgentRow,
    is_so: impl Fn(&AgentRow) -> bool,
) -> Result<AgentRow, Failure> {
    let mut events = client.events().await.map_err(worded)?;
    loop {
        match events.next().await.map_err(worded)? {
            Some(FleetEvent::Agent(row)) if row.id == agent.id && is_so(&row) => return Ok(*row),
            Some(FleetEvent::Removed { id }) if id == agent.id => {
                return Err(Failure::new(format!("agent {id} was removed")));
            }
            Some(FleetEvent::Bye {}) | None => {
                return Err(Failure::new("the daemon has left").hint("try again: agents go on without it"));
            }
            Some(_) => {}
        }
    }
}

/// What a person types, a message at a time; none at all where stdin is no terminal. The end of the channel is Ctrl+D.
fn typed() -> Option<mpsc::UnboundedReceiver<String>> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    let (sender, lines) = mpsc::unbounded_channel();
    // Reading a terminal blocks: it has a thread of its own, which is left behind when we end.
    std::thread::spawn(move || {
        let stdin = std::io::stdin();
        loop {
            let mut text = String::new();
            let mut is_over = !matches!(stdin.lock().read_line(&mut text), Ok(1..));
            // Nobody types that fast: it is pasted, and one message.
            while !is_over && has_more(&stdin) {
                is_over = !matches!(stdin.lock().read_line(&mut text), Ok(1..));
            }
            if (!text.is_empty() && sender.send(text).is_err()) || is_over {
                return;
            }
        }
    });
    Some(lines)
}

/// Whether more is there, or comes at once.
fn has_more(stdin: &std::io::Stdin) -> bool {
    let mut fds = [PollFd::new(stdin, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&PASTE_PAUSE)).is_ok_and(|ready| ready > 0)
}

async fn next_line(lines: &mut Option<mpsc::UnboundedReceiver<String>>) -> Option<String> {
    match lines {
        Some(lines) => lines.recv().await,
        None => std::future::pending().await,
    }
}

async fn converse(
    mut link: Link,
    agent: &AgentRow,
    (early, lines): (&mut VecDeque<String>, &mut Option<mpsc::UnboundedReceiver<String>>),
    out: &mut dyn Write,
) -> Result<Over, Failure> {
    let (client, session) = (link.client.clone(), link.session.clone());
    let mut screen = Screen::default();
    let mut desk: Desk<Question> = Desk::default();
    let mut said: JoinSet<Result<(), Failure>> = JoinSet::new();
    let mut commands: Vec<(String, String)> = Vec::new();
    let loading = client.load_session(&session, &link.cwd);
    tokio::pin!(loading);
    let mut is_loaded = false;
    screen.line(Style::new(), &format!("agent {}: {}", row::name(agent), agent.prompt), out)?;
    if lines.is_some() {
        say("type to steer it; Ctrl+D leaves it running");
    }
    if let Some(why) = link.client.no_say() {
        say(&format!("its questions are not shown here: {why}"));
    }
    let slow = tokio::time::sleep(PATIENCE);
    tokio::pin!(slow);
    let mut is_slow = false;
    let reader = if lines.is_some() { Reader::Answers } else { Reader::CannotAnswer };
    let interrupted = async {
        let _no_handler = tokio::signal::ctrl_c().await;
    };
    tokio::pin!(interrupted);
    loop {
        // Somebody else may have answered.
        if desk.drop_moot(|question| question.withdrawn().is_cancelled(), Instant::now()) {
            screen.line(Style::new(), "  (answered elsewhere)", out)?;
            show_question(&desk, &mut screen, reader, out)?;
        }
        let moot = desk.shown().map(|question| question.withdrawn().clone());
        tokio::select! {
            event = link.events.next() => match event {
                Ok(Some(ClientEvent::Update(update))) => match update.update {
                    SessionUpdate::AvailableCommandsUpdate(known) => {
                        let known = known.available_commands.into_iter();
                        commands = known.map(|command| (command.name, command.description)).collect();
                    }
                    other => screen.update(other, out)?,
                },
                Ok(Some(ClientEvent::Permission(question))) => {
                    desk.put(question);
                    // One at a time: an answer must be to what is shown.
                    if desk.len() == 1 {
                        show_question(&desk, &mut screen, reader, out)?;
                    }
                }
                Ok(Some(ClientEvent::TurnEnded(ended))) => screen.turn_ended(&ended, out)?,
                Ok(Some(ClientEvent::Closed(_)) | None) | Err(_) if is_loaded => {
                    screen.line(Style::new(), "", out)?;
                    return Ok(Over::HungUp);
                }
                Ok(Some(ClientEvent::Closed(_)) | None) | Err(_) => {
                    return Ok(Over::Unseen(Failure::new("the agent has hung up")));
                }
            },
            answer = &mut loading, if !is_loaded => match answer {
                Ok(_) => is_loaded = true,
                Err(error) => return Ok(Over::Unseen(link::worded(error))),
            },
            () = &mut slow, if !is_loaded && !is_slow => {
                is_slow = true;
                say("the agent does not answer; it may be stopped (Ctrl+C leaves)");
            }
            line = next_early(early, lines), if is_loaded => {
                // Ctrl+D leaves the cursor where it is.
                let Some(line) = line else {
                    screen.end_line(out)?;
                    return Ok(Over::Left);
                };
                screen.entered();
                match Typed::of(&line, &commands) {
                    Typed::Nothing => {}
                    Typed::Cancel => client.cancel(&session).await.map_err(link::worded)?,
                    Typed::Help => help(&commands, &mut screen, out)?,
                    Typed::Unknown(name) => {
                        let words = format!("there is no command {name}; /help lists them. Nothing was sent");
                        screen.line(Style::new(), &words, out)?;
                    }
                    Typed::Command(line) => {
                        said.spawn(tell(client.clone(), session.clone(), line));
                    }
                    Typed::Words(line) => match answer(&line, &mut desk) {
                        Meant::Message => {
                            said.spawn(tell(client.clone(), session.clone(), line));
                        }
                        Meant::Answer(question, reply) => {
                            // A connection that is gone is seen by the next event.
                            let _gone = question.answer(reply).await;
                            show_question(&desk, &mut screen, reader, out)?;
                        }
                        Meant::View => show_question(&desk, &mut screen, Reader::WantsAll, out)?,
                        Meant::Not(words) => {
                            screen.line(Style::new(), words, out)?;
                            show_question(&desk, &mut screen, reader, out)?;
                        }
                    },
                }
            }
            Some(told) = said.join_next(), if !said.is_empty() => match told {
                // What came of a command ends without one.
                Ok(Ok(())) => screen.end_line(out)?,
                Ok(Err(failure)) => failure.show(),
                Err(error) => return Err(Failure::new(error.to_string())),
            },
            () = async { match &moot { Some(moot) => moot.cancelled().await, None => std::future::pending().await } } => {}
            () = &mut interrupted => {
                // The terminal has shown the key.
                if lines.is_some() {
                    writeln!(out)?;
                }
                return Ok(Over::Left);
            }
        }
    }
}

/// What was typed early, then what is typed now.
async fn next_early(
    early: &mut VecDeque<String>,
    lines: &mut Option<mpsc::UnboundedReceiver<String>>,
) -> Option<String> {
    match early.pop_front() {
        Some(line) => Some(line),
        None => next_line(lines).await,
    }
}

/// What was typed, before it is known whether something is asked.
#[derive(Debug, PartialEq, Eq)]
enum Typed {
    Nothing,
    /// `/cancel`: stops the turn.
    Cancel,
    /// `/help`.
    Help,
    /// A command of the agent's own.
    Command(String),
    /// Something that looks like one.
    Unknown(String),
    Words(String),
}

impl Typed {
    fn of(text: &str, commands: &[(String, String)]) -> Self {
        let text = text.trim();
        let Some(name) = text.strip_prefix('/') else {
            return if text.is_empty() { Self::Nothing } else { Self::Words(text.to_owned()) };
        };
        // A path, or several lines, is no command.
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            return Self::Words(text.to_owned());
        }
        match name {
            "cancel" => Self::Cancel,
            "help" => Self::Help,
            _ if commands.iter().any(|(known, _)| known == name) => Self::Command(text.to_owned()),
            _ => Self::Unknown(text.to_owned()),
        }
    }
}

/// What words mean to the questions that lie open.
enum Meant {
    Message,
    Answer(Box<Question>, Reply),
    View,
    /// No answer, for this reason.
    Not(&'static str),
}

fn answer(line: &str, desk: &mut Desk<Question>) -> Meant {
    let Some(shown) = desk.shown() else { return Meant::Message };
    let reply = match Consent::of(line, shown.offers_always()) {
        Consent::View => return Meant::View,
        Consent::NoAlways => return Meant::Not("there is no rule for that: y allows it once"),
        Consent::Once => Reply::AllowOnce,
        Consent::Always => Reply::AllowAlways,
        Consent::No => Reply::Reject(None),
        Consent::Instead(reason) => Reply::Reject(Some(reason)),
    };
    match desk.take(Instant::now()) {
        Taken::Nothing => Meant::Message,
        Taken::Changed => Meant::Not("the question has changed meanwhile; this was not taken as an answer"),
        Taken::Question(question) => Meant::Answer(Box::new(question), reply),
    }
}

fn help(commands: &[(String, String)], screen: &mut Screen, out: &mut dyn Write) -> std::io::Result<()> {
    screen.line(Style::new(), "/cancel: Stop the turn", out)?;
    screen.line(Style::new(), "/help: List the commands", out)?;
    for (name, about) in commands.iter().filter(|(name, _)| name != "help") {
        screen.line(Style::new(), &format!("/{name}: {about}"), out)?;
    }
    screen.line(Style::new(), "Ctrl+D: Leave; the agent goes on", out)
}

/// Shows the question that is to be answered next, if there is one.
fn show_question(
    desk: &Desk<Question>,
    screen: &mut Screen,
    reader: Reader,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    desk.shown().map_or(Ok(()), |question| screen.question(question, reader, out))
}

/// What was typed, to the agent: a command of its own as a prompt, anything else as a message that is on disk when it
/// is acknowledged.
async fn tell(client: caliban_acp::Client, session: String, line: String) -> Result<(), Failure> {
    if line.starts_with('/') {
        return client.prompt(&session, vec![ContentBlock::from(line)]).await.map(drop).map_err(link::worded);
    }
    let params = json!({"sessionId": session, "text": line});
    let sent = client.peer().call::<Value>(SEND, &params).await;
    sent.map(drop).map_err(|error| link::worded(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_is_a_command_that_there_is_or_said_to_be_none() {
        let known = [("status".to_owned(), String::new())];
        for (text, is) in [
            (" /cancel \n", Typed::Cancel),
            ("/help", Typed::Help),
            ("/status", Typed::Command("/status".into())),
            ("/stats", Typed::Unknown("/stats".into())),
            ("/etc/hosts is wrong", Typed::Words("/etc/hosts is wrong".into())),
            ("/ab\ncd", Typed::Words("/ab\ncd".into())),
            ("/", Typed::Words("/".into())),
            (" \n", Typed::Nothing),
        ] {
            assert_eq!(Typed::of(text, &known), is, "{text:?}");
        }
    }
}
