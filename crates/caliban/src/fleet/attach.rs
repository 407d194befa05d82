//! `caliban attach`: an agent live, with its history first. What is typed steers it; leaving changes nothing for it.
//!
//! One that has ended is replayed from its transcript; one that waits for its start is waited for.

use std::{
    io::{BufRead as _, IsTerminal as _, Write},
    time::{Duration, Instant},
};

use anstyle::Style;
use caliban_acp::{
    ClientEvent,
    client::{Question, Reply},
    v1::ContentBlock,
};
use caliban_core::lifecycle::State;
use caliban_supervisor::{
    Client, ClientError,
    protocol::{AgentRow, ErrorCode, FleetEvent},
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    Fleet,
    desk::{Desk, Taken},
    link,
    link::{Link, SEND},
    logs::{replay, verdict},
    row, say,
    screen::Screen,
    worded,
};
use crate::{
    cli::fleet::AttachArgs,
    report::{Code, Failure},
};

/// How long the daemon may take to see that a worker which hung up has ended.
const END_LIMIT: Duration = Duration::from_secs(30);

/// The same for one that hung up before we had seen anything; one that lives and does not talk is an error.
const UNSEEN_LIMIT: Duration = Duration::from_secs(10);

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
    loop {
        if row::has_ended(agent.state) {
            replay(&agent, out)?;
            writeln!(out, "\n{}", verdict(&agent))?;
            say(&format!("it has ended; `caliban resume {id} --prompt \"…\"` lets it go on"));
            return Ok(Code::Done);
        }
        let socket = match client.wake(&id).await {
            Ok(awake) => awake.socket,
            Err(ClientError::Refused(error)) if error.code == ErrorCode::Queued => {
                say(&format!("{}; waiting (Ctrl+C leaves)", row::doing(&agent, row::now_ms())));
                agent =
                    until(&client, &agent, |row| row.state != State::Spawning || row.queued_behind.is_none())
                        .await?;
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
            Ok(link) => converse(link, &agent, &mut lines, out).await?,
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

/// The lines that a person types; none at all where stdin is no terminal. The end of the channel is Ctrl+D.
fn typed() -> Option<mpsc::Receiver<String>> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    let (sender, lines) = mpsc::channel(1);
    // Reading a terminal blocks: it has a thread of its own, which is left behind when we end.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    Some(lines)
}

async fn next_line(lines: &mut Option<mpsc::Receiver<String>>) -> Option<String> {
    match lines {
        Some(lines) => lines.recv().await,
        None => std::future::pending().await,
    }
}

async fn converse(
    mut link: Link,
    agent: &AgentRow,
    lines: &mut Option<mpsc::Receiver<String>>,
    out: &mut dyn Write,
) -> Result<Over, Failure> {
    let (client, session) = (link.client.clone(), link.session.clone());
    let mut screen = Screen::default();
    let mut desk: Desk<Question> = Desk::default();
    let mut said: JoinSet<Result<(), Failure>> = JoinSet::new();
    let loading = client.load_session(&session, &link.cwd);
    tokio::pin!(loading);
    let mut is_loaded = false;
    screen.line(Style::new(), &format!("agent {}: {}", row::name(agent), agent.prompt), out)?;
    if lines.is_some() {
        say("type to steer it; Ctrl+D leaves it running");
    }
    let interrupted = async {
        let _no_handler = tokio::signal::ctrl_c().await;
    };
    tokio::pin!(interrupted);
    loop {
        // Somebody else may have answered.
        if desk.drop_moot(|question| question.withdrawn().is_cancelled(), Instant::now()) {
            screen.line(Style::new(), "  (answered elsewhere)", out)?;
            show_question(&desk, &mut screen, lines.is_some(), out)?;
        }
        let moot = desk.shown().map(|question| question.withdrawn().clone());
        tokio::select! {
            event = link.events.next() => match event {
                Ok(Some(ClientEvent::Update(update))) => screen.update(update.update, out)?,
                Ok(Some(ClientEvent::Permission(question))) => {
                    desk.put(question);
                    // One at a time: an answer must be to what is shown.
                    if desk.len() == 1 {
                        show_question(&desk, &mut screen, lines.is_some(), out)?;
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
            line = next_line(lines) => {
                // Ctrl+D leaves the cursor where it is.
                let Some(line) = line else {
                    screen.end_line(out)?;
                    return Ok(Over::Left);
                };
                screen.entered();
                let line = line.trim().to_owned();
                if line.is_empty() {
                    continue;
                }
                match desk.take(Instant::now()) {
                    Taken::Question(question) => {
                        let reply = reply(&line, question.offers_always());
                        // A connection that is gone is seen by the next event.
                        let _gone = question.answer(reply).await;
                        show_question(&desk, &mut screen, true, out)?;
                    }
                    Taken::Changed => {
                        let words = "the question has changed meanwhile; this was not taken as an answer";
                        screen.line(Style::new(), words, out)?;
                        show_question(&desk, &mut screen, true, out)?;
                    }
                    Taken::Nothing if line == "/cancel" => {
                        client.cancel(&session).await.map_err(link::worded)?;
                    }
                    Taken::Nothing => {
                        if line == "/help" {
                            screen.line(Style::new(), "/cancel: Stop the turn", out)?;
                        }
                        said.spawn(tell(client.clone(), session.clone(), line));
                    }
                }
            }
            Some(told) = said.join_next(), if !said.is_empty() => match told {
                Ok(Ok(())) => {}
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

/// Shows the question that is to be answered next, if there is one.
fn show_question(
    desk: &Desk<Question>,
    screen: &mut Screen,
    can_answer: bool,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    desk.shown().map_or(Ok(()), |question| screen.question(question, can_answer, out))
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

/// What a line means while a question is open.
fn reply(line: &str, offers_always: bool) -> Reply {
    match line {
        "y" | "Y" | "yes" => Reply::AllowOnce,
        "a" | "A" | "always" if offers_always => Reply::AllowAlways,
        "n" | "N" | "no" => Reply::Reject(None),
        reason => Reply::Reject(Some(reason.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        assert_eq!(reply("y", false), Reply::AllowOnce);
        assert_eq!(reply("a", true), Reply::AllowAlways);
        assert_eq!(reply("a", false), Reply::Reject(Some("a".into())));
        assert_eq!(reply("n", true), Reply::Reject(None));
        assert_eq!(reply("use make check", true), Reply::Reject(Some("use make check".into())));
    }
}
