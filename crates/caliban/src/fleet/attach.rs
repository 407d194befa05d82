//! `caliban attach`: an agent live, with its history first. What is typed steers it; leaving changes nothing for it.
//!
//! One that has ended is replayed from its transcript; one that waits for its start is waited for.

mod conversation;
mod plain_view;
mod typed_line;

use std::{collections::VecDeque, io::Write, path::Path, time::Duration};

use caliban_acp::{
    Link, Unreached,
    extension::{SECRETS, SecretsRequest},
};
use caliban_core::lifecycle::State;
use caliban_fleet::{
    Client, ClientError,
    feed::{DaemonEnd, FleetFeed, FleetNews},
    protocol::{AgentRow, ErrorCode},
};
use serde_json::json;

use self::conversation::{Over, Talk, TalkMemory};
use super::{
    Fleet,
    logs::{replay, verdict},
    row, say,
    watch::Daemons,
};
use crate::{
    cli::fleet::AttachArgs,
    keyboard::{Keyboard, TypedLine},
    report::{Code, Failure, Result},
    settings::tool_environment::spoken_secrets,
};

/// How long the daemon may take to see that a worker which hung up has ended.
const END_LIMIT: Duration = Duration::from_secs(30);

/// The same for one that hung up before we had seen anything; one that lives and does not talk is an error.
const UNSEEN_LIMIT: Duration = Duration::from_secs(10);

/// Without an agent, a person at a terminal chooses one in the agent view; anybody else is told which there are.
pub(super) async fn from_args(fleet: &Fleet<'_>, args: &AttachArgs, out: &mut dyn Write) -> Result<Code> {
    let has_screen = !args.plain && crate::screen::is_possible(fleet.environment);
    match &args.id {
        Some(id) => attach(fleet, id, has_screen, out).await,
        None if has_screen => super::view::view(fleet).await,
        None => Err(which(&fleet.client().await?.list().await?)),
    }
}

/// Asks for an agent's name, with those that can be given.
fn which(agents: &[AgentRow]) -> Failure {
    let now = caliban_contract::wall_ms();
    let line = |agent: &&AgentRow| {
        let label = agent.label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
        format!("caliban attach {}{label}: {}", agent.id, row::doing(agent, now))
    };
    let living: Vec<String> =
        agents.iter().filter(|agent| !row::has_ended(agent.state)).map(|agent| line(&agent)).collect();
    Failure::usage("say which agent").hint(match living.is_empty() {
        true => "no agent is alive here; `caliban agents list` shows those that have ended".to_owned(),
        false => living.join("\n"),
    })
}

/// Attaches to one agent, on a screen or in plain lines.
pub(super) async fn attach(
    fleet: &Fleet<'_>,
    id: &str,
    has_screen: bool,
    out: &mut dyn Write,
) -> Result<Code> {
    let mut client = fleet.client().await?;
    let mut agent = client.show(id).await?;
    let id = agent.id.to_string();
    let mut keyboard = if has_screen { None } else { Keyboard::open()? };
    // What was typed before the agent could hear it.
    let mut early: VecDeque<TypedLine> = VecDeque::new();
    loop {
        if row::has_ended(agent.state) {
            replay(&agent, out)?;
            writeln!(out, "\n{}", verdict(&agent))?;
            early.extend(keyboard.iter_mut().flat_map(Keyboard::rest));
            for line in early.iter().map(|line| line.text.trim()).filter(|line| !line.is_empty()) {
                say(&format!("it has ended before it could hear this: {line}"));
            }
            say(&format!("it has ended; `caliban resume {id} --prompt \"…\"` lets it go on"));
            return Ok(Code::Done);
        }
        let socket = match fleet.wake(&mut client, &id).await {
            Ok(awake) => awake.socket,
            Err(ClientError::Refused(error)) if error.code == ErrorCode::Queued => {
                let key = if keyboard.is_some() { "Ctrl+D" } else { "Ctrl+C" };
                say(&format!("{}; waiting ({key} leaves)", row::doing(&agent, caliban_contract::wall_ms())));
                let Some(begun) = begun(fleet, &mut client, &agent, &mut keyboard, &mut early).await? else {
                    if keyboard.is_some() {
                        // The terminal has shown the key, or what was being typed.
                        writeln!(out)?;
                    }
                    early.extend(keyboard.iter_mut().flat_map(Keyboard::rest));
                    for text in early.iter().map(|line| line.text.trim()).filter(|text| !text.is_empty()) {
                        say(&format!("it was not told this: {text}"));
                    }
                    say(&format!("detached; agent {id} still waits for its start"));
                    return Ok(Code::Done);
                };
                agent = begun;
                continue;
            }
            // It ended in the meantime.
            Err(ClientError::Refused(error)) if error.code == ErrorCode::Ended => {
                agent = client.show(&id).await?;
                if row::has_ended(agent.state) {
                    continue;
                }
                return Err(Failure::from(ClientError::Refused(error)));
            }
            Err(error) => return Err(Failure::from(error)),
        };
        let over = match open(fleet, &socket).await {
            Ok(link) if has_screen => {
                let left = screen(fleet, link, &agent).await?;
                let code = crate::screen::ended(&left);
                if let Some(failure) = left.failure {
                    return Err(Failure::hinted(failure.message, failure.hint));
                }
                if left.is_gone {
                    ended(fleet, &mut client, &agent, out).await?;
                } else {
                    say(&format!("detached; agent {id} goes on"));
                }
                return Ok(code);
            }
            Ok(link) => {
                let (keyboard, early, memory) = (&mut keyboard, &mut early, TalkMemory::default());
                Talk { link, agent: &agent, keyboard, early, memory }.run(&mut client, out).await?
            }
            Err(unreached) => Over::Unseen(Failure::from(unreached)),
        };
        match over {
            Over::Left(untold) => {
                for text in untold {
                    say(&format!("it was not told this: {text}"));
                }
                say(&format!("detached; agent {id} goes on"));
                return Ok(Code::Done);
            }
            Over::HungUp(unheard) => {
                ended(fleet, &mut client, &agent, out).await?;
                for text in &unheard {
                    say(&format!("it did not hear this: {text}"));
                }
                if !unheard.is_empty() {
                    say(&format!("`caliban resume {id} --prompt \"…\"` says it again"));
                }
                return Ok(Code::Done);
            }
            // It ended while we came: what it did is in its files.
            Over::Unseen(failure) => {
                let is_over = |row: &AgentRow| row::has_ended(row.state) || row.hibernated;
                let over = until(fleet, &mut client, &agent, is_over);
                agent = tokio::time::timeout(UNSEEN_LIMIT, over).await.map_err(|_| failure)??;
            }
        }
    }
}

/// A connection to the agent, which knows the secrets of our shell before we say anything: it cannot look into this process (a12).
async fn open(fleet: &Fleet<'_>, socket: &Path) -> std::result::Result<Link, Unreached> {
    let mut link = Link::open(socket, env!("CARGO_PKG_VERSION"), None, say).await?;
    let secrets = SecretsRequest { secrets: spoken_secrets(fleet.environment) };
    match link.call(SECRETS, json!(secrets)).await {
        Err(unreached) if unreached.is_gone => return Err(unreached),
        // A worker of an earlier version does not know what that means.
        Err(_) => say(
            "this agent is older than this program: a secret of this shell that you type stays in its transcript",
        ),
        Ok(_) => {}
    }
    Ok(link)
}

/// Shows the agent on the screen until the person leaves.
async fn screen(fleet: &Fleet<'_>, link: Link, agent: &AgentRow) -> Result<caliban_tui::ScreenEnd> {
    use crate::screen::{facts, look, machine, place, theme, ui};
    let environment = fleet.environment;
    let ui = ui(environment, &fleet.cwd);
    let facts = caliban_tui::ScreenFacts {
        attached: Some(row::name(agent)),
        place: place(&link.cwd, environment),
        no_say: link.client.no_say().map(str::to_owned),
        ..facts(&link.cwd)
    };
    let options = caliban_tui::ScreenOptions {
        facts,
        theme: theme(environment, &ui),
        look: look(environment, &ui),
        machine: machine(environment, &ui),
        cwd: link.cwd,
        open: caliban_tui::SessionChoice::Load(link.session),
        prompt: None,
        history: None,
        redactor: caliban_core::redact::Redactor::default(),
        notes: None,
        fleet: None,
    };
    caliban_tui::run(link.client, link.events, options)
        .await
        .map_err(|error| Failure::new(format!("the terminal cannot be used: {error}")))
}

/// Waits for the start of an agent that is queued, and keeps what is typed meanwhile; none when the person leaves.
async fn begun(
    fleet: &Fleet<'_>,
    client: &mut Client,
    agent: &AgentRow,
    keyboard: &mut Option<Keyboard>,
    early: &mut VecDeque<TypedLine>,
) -> Result<Option<AgentRow>> {
    let has_begun = |row: &AgentRow| row.state != State::Spawning || row.queued_behind.is_none();
    let waiting = until(fleet, client, agent, has_begun);
    tokio::pin!(waiting);
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        tokio::select! {
            begun = &mut waiting => return begun.map(Some),
            _no_handler = &mut interrupted => return Ok(None),
            line = Keyboard::next_of(keyboard) => match line {
                Some(line) => {
                    if line.is_whole && !line.text.trim().is_empty() {
                        say("it will hear that when it has started");
                    }
                    early.push_back(line);
                }
                None => return Ok(None),
            },
        }
    }
}

/// How an agent stands whose worker has hung up.
async fn ended(fleet: &Fleet<'_>, client: &mut Client, agent: &AgentRow, out: &mut dyn Write) -> Result<()> {
    let over = |row: &AgentRow| row::has_ended(row.state) || row.hibernated;
    match tokio::time::timeout(END_LIMIT, until(fleet, client, agent, over)).await {
        Ok(row) => writeln!(out, "{}", verdict(&row?))?,
        Err(_) => say("the agent has hung up; `caliban agents list` tells how it stands"),
    }
    Ok(())
}

/// Waits until the agent is so, from whichever daemon; `client` is one of the last.
async fn until(
    fleet: &Fleet<'_>,
    client: &mut Client,
    agent: &AgentRow,
    is_so: impl Fn(&AgentRow) -> bool,
) -> Result<AgentRow> {
    let removed = || Failure::new(format!("agent {} was removed", agent.id));
    let mut daemons = Daemons::new(fleet);
    loop {
        let left = match client.events().await {
            Err(_) => DaemonEnd::Gone,
            Ok(events) => {
                let mut feed = FleetFeed::of(events);
                loop {
                    let found = match feed.next().await {
                        Ok(FleetNews::All(rows)) => {
                            daemons.is_well();
                            rows.into_iter().find(|row| row.id == agent.id).ok_or_else(removed)?
                        }
                        Ok(FleetNews::Changed(row)) if row.id == agent.id => *row,
                        Ok(FleetNews::Removed(id)) if id == agent.id => return Err(removed()),
                        Ok(FleetNews::Changed(_) | FleetNews::Removed(_)) => continue,
                        Err(left) => break left,
                    };
                    if is_so(&found) {
                        return Ok(found);
                    }
                }
            }
        };
        *client = daemons.next(left).await?.ok_or_else(|| {
            Failure::new("the daemon was stopped").hint("try again: agents go on without it")
        })?;
    }
}
