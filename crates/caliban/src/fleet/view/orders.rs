//! What a key of the agent view does to agents: the same verbs as on the command line, with the same words.

use caliban_agent::event::{Answer, Ask};
use caliban_contract::recorded_ask::RecordedAsk;
use caliban_core::redact::Redactor;
use caliban_fleet::landing::words;
use caliban_fleet::protocol::{AgentRow, Diff};
use caliban_tui::fleet::{AgentKey, FleetAsk, FleetEffect, FleetEvent, Forecast};

use super::{FleetBoard, dispatch};
use crate::{
    cli::fleet::{IdArg, KillArgs, RespawnArgs, ResumeArgs, SendArgs},
    fleet::{Fleet, answer, kill, logs, merge, respawn, resume, row, send, spawn},
    report::{Code, Failure, Result},
    settings::tool_environment::spoken_secrets,
};

/// Lines of an agent's transcript that a peek has.
const PEEK_LINES: usize = 500;

/// One order for each agent: each is carried out, and told, by itself.
pub(super) fn split(order: FleetEffect) -> Vec<FleetEffect> {
    let one = |key: AgentKey| vec![key];
    match order {
        FleetEffect::Stop(keys) => keys.into_iter().map(one).map(FleetEffect::Stop).collect(),
        FleetEffect::Resume(keys) => keys.into_iter().map(one).map(FleetEffect::Resume).collect(),
        FleetEffect::Respawn(keys) => keys.into_iter().map(one).map(FleetEffect::Respawn).collect(),
        other => vec![other],
    }
}

/// Carries an order out; what the screen is told of it.
pub(super) async fn carry_out(fleet: &Fleet<'_>, board: &FleetBoard, order: FleetEffect) -> Vec<FleetEvent> {
    let told = match order {
        FleetEffect::Peek(key) => return peek(board, key),
        FleetEffect::Ask(keys) => return asks(board, &keys),
        FleetEffect::Dispatch(line) => return vec![start(fleet, &line).await],
        FleetEffect::Reply(key, text) => {
            return match reply(fleet, board, &key, &text).await {
                Ok(told) => vec![FleetEvent::Told(told)],
                Err(failure) => vec![FleetEvent::NotSent(key, text, worded(&failure))],
            };
        }
        FleetEffect::Answer(key, ask, digest, reply) => {
            give(fleet, board, &key, (&ask, &digest), reply).await.map(FleetEvent::Told)
        }
        FleetEffect::Diff(key) => diff(fleet, key).await,
        FleetEffect::Foretell(key) => foretell(fleet, board, key).await,
        FleetEffect::Stop(keys) => each(fleet, keys, stop).await,
        FleetEffect::Resume(keys) => each(fleet, keys, go_on).await,
        FleetEffect::Respawn(keys) => each(fleet, keys, anew).await,
        // The screen itself does these.
        FleetEffect::Attach(_)
        | FleetEffect::Merge(..)
        | FleetEffect::Show(_)
        | FleetEffect::Ring(_)
        | FleetEffect::Repaint
        | FleetEffect::Quit => return Vec::new(),
    };
    vec![told.unwrap_or_else(|failure| FleetEvent::Told(worded(&failure)))]
}

/// What was said while an order was carried out, behind its outcome.
pub(super) fn with_talk(event: FleetEvent, talk: &[String]) -> FleetEvent {
    let with = |text: String| {
        let talk = talk.iter().filter(|line| !line.starts_with("watch it: ")).cloned();
        std::iter::once(text).chain(talk).collect::<Vec<_>>().join("; ")
    };
    match event {
        FleetEvent::Told(text) => FleetEvent::Told(with(text)),
        FleetEvent::Dispatched(outcome) => FleetEvent::Dispatched(outcome.map(&with).map_err(&with)),
        other => other,
    }
}

/// A failure in one text.
pub(super) fn worded(failure: &Failure) -> String {
    match &failure.hint {
        Some(hint) if !hint.is_empty() => format!("{}; {hint}", failure.message),
        _ => failure.message.clone(),
    }
}

/// The fleet that an agent belongs to.
pub(super) fn fleet_of<'e>(fleet: &Fleet<'e>, key: &AgentKey) -> Result<Fleet<'e>> {
    let is_own = key.repo == fleet.places().repo();
    Fleet::open(fleet.environment, if is_own { &fleet.cwd } else { &key.repo })
}

/// Does the same to each of some agents.
async fn each<'e>(
    fleet: &Fleet<'e>,
    keys: Vec<AgentKey>,
    what: impl AsyncFn(&Fleet<'e>, IdArg) -> Result<String>,
) -> Result<FleetEvent> {
    let mut told = Vec::new();
    for key in keys {
        let fleet = fleet_of(fleet, &key)?;
        told.push(what(&fleet, IdArg { id: key.id }).await?);
    }
    Ok(FleetEvent::Told(told.join("; ")))
}

async fn stop(fleet: &Fleet<'_>, agent: IdArg) -> Result<String> {
    let mut out = Vec::new();
    let args = KillArgs { ids: vec![agent.id], ..KillArgs::default() };
    kill::kill(fleet, &args, &mut out).await?;
    Ok(text(&out))
}

async fn go_on(fleet: &Fleet<'_>, agent: IdArg) -> Result<String> {
    let told = format!("{} goes on", agent.id);
    resume::resume(fleet, &ResumeArgs { agent, ..ResumeArgs::default() }, &mut Vec::new()).await?;
    Ok(told)
}

async fn anew(fleet: &Fleet<'_>, agent: IdArg) -> Result<String> {
    let mut out = Vec::new();
    let old = agent.id.clone();
    respawn::respawn(fleet, &RespawnArgs { agent, ..RespawnArgs::default() }, &mut out).await?;
    Ok(format!("{} starts in place of {old}", text(&out)))
}

async fn start(fleet: &Fleet<'_>, line: &str) -> FleetEvent {
    let mut out = Vec::new();
    let started = async {
        let args = dispatch::parse(line)?;
        spawn::from_args(fleet, &args, &mut out).await
    };
    FleetEvent::Dispatched(match started.await {
        Ok(_) => Ok(format!("started {}", text(&out))),
        Err(failure) => Err(worded(&failure)),
    })
}

/// A message for an agent; one that has ended goes on with it.
async fn reply(fleet: &Fleet<'_>, board: &FleetBoard, key: &AgentKey, said: &str) -> Result<String> {
    let row = board.row(key)?;
    let fleet = fleet_of(fleet, key)?;
    let agent = IdArg { id: key.id.clone() };
    let mut out = Vec::new();
    if row::has_ended(row.state) {
        let args = ResumeArgs { agent, prompt: Some(said.to_owned()), ..ResumeArgs::default() };
        resume::resume(&fleet, &args, &mut out).await?;
        return Ok(format!("{} goes on with it", key.id));
    }
    // The agent cannot look for the secrets of this process (a12).
    let said = Redactor::new(spoken_secrets(fleet.environment)).redact(said).into_owned();
    // A message that is a single dash stands for stdin on the command line.
    let said = if said == "-" { " -".to_owned() } else { said };
    send::send(&fleet, &SendArgs { agent, text: said }, &mut out).await?;
    Ok(text(&out))
}

fn peek(board: &FleetBoard, key: AgentKey) -> Vec<FleetEvent> {
    let lines = board.row(&key).and_then(|row| logs::last_lines(&row, PEEK_LINES));
    let lines = lines.unwrap_or_else(|failure| vec![worded(&failure)]);
    vec![FleetEvent::Peeked(key, lines)]
}

/// Every question of these agents with the whole call, as the transcript has it.
fn asks(board: &FleetBoard, keys: &[AgentKey]) -> Vec<FleetEvent> {
    let mut found = Vec::new();
    let mut problems = Vec::new();
    for key in keys {
        match board.row(key).and_then(|row| asks_of(key, &row)) {
            Ok(asks) => found.extend(asks),
            Err(failure) => problems.push(FleetEvent::Told(worded(&failure))),
        }
    }
    std::iter::once(FleetEvent::Asked(found)).chain(problems).collect()
}

fn asks_of(key: &AgentKey, row: &AgentRow) -> Result<Vec<FleetAsk>> {
    let mut asks = Vec::new();
    for open in &row.asks {
        let Some(ask) = RecordedAsk::find::<Ask>(&row.dir, &open.id)? else {
            return Err(Failure::new(format!("the transcript of {} does not have the question yet", key.id)));
        };
        let why = caliban_agent::event::why_in_words(&ask);
        asks.push(FleetAsk {
            key: key.clone(),
            id: open.id.clone(),
            digest: open.digest.clone(),
            tool: ask.name,
            who: match ask.agent.as_deref() {
                Some(helper) => format!("{} › {}", row::name(row), caliban_core::inert::line(helper)),
                None => row::name(row),
            },
            input: ask.input,
            preview: ask.preview,
            why,
            rules: open.suggestions.clone(),
            outside: open.outside.clone(),
        });
    }
    Ok(asks)
}

async fn give(
    fleet: &Fleet<'_>,
    board: &FleetBoard,
    key: &AgentKey,
    (id, digest): (&str, &str),
    answer: Answer,
) -> Result<String> {
    let fleet = fleet_of(fleet, key)?;
    let row = board.row(key)?;
    let Some(ask) = row.asks.iter().find(|ask| ask.id == id && ask.digest == digest) else {
        return Err(Failure::new(format!("{} does not ask this any more", key.id)));
    };
    let how = match &answer {
        Answer::Once => "allowed".to_owned(),
        Answer::Always | Answer::AlwaysOutside => "allowed always".to_owned(),
        Answer::Keep(kept) => format!("allowed always, {}", kept.words()),
        Answer::No(_) => "refused".to_owned(),
    };
    answer::give(&fleet, &key.id, ask, answer).await?;
    Ok(format!("{how} for {}: {}", row::name(&row), caliban_fleet::one_line(&ask.what)))
}

async fn diff(fleet: &Fleet<'_>, key: AgentKey) -> Result<FleetEvent> {
    let mut client = fleet_of(fleet, &key)?.client().await?;
    let diff = client.diff(&key.id, false).await?;
    let mut lines = vec![diff.summary.clone()];
    lines.extend(diff.commits.iter().map(|commit| {
        let short: String = commit.oid.chars().take(10).collect();
        format!("commit {short}  {}", commit.subject)
    }));
    lines.extend(uncommitted(&diff));
    lines.push(String::new());
    let mut text = lines.join("\n") + "\n";
    text.push_str(diff.patch.as_deref().unwrap_or_default());
    if diff.patch_is_cut == Some(true) {
        text.push_str("\nthe patch is longer than what is shown here");
    }
    Ok(FleetEvent::Diffed(key, text))
}

fn uncommitted(diff: &Diff) -> Option<String> {
    match diff.uncommitted.as_slice() {
        [] => None,
        [one] => Some(format!("not committed yet: {}", one.path)),
        several => Some(format!("not committed yet: {} paths", several.len())),
    }
}

async fn foretell(fleet: &Fleet<'_>, board: &FleetBoard, key: AgentKey) -> Result<FleetEvent> {
    let row = board.row(&key)?;
    Ok(FleetEvent::Foretold(match merge::forecast_for_view(&fleet_of(fleet, &key)?, &row).await {
        Ok(forecast) => {
            let mut lines = words::forecast(&forecast, false);
            if !forecast.conflicts.is_empty() {
                lines.push("say it to the agent (p), or merge by hand with git".to_owned());
            }
            let message = words::suggested(&forecast, false).to_owned();
            Forecast { key, lines, can_land: forecast.can_land(), message }
        }
        Err(refused) => {
            let lines = std::iter::once(refused.words.message.clone()).chain(refused.words.hint.clone());
            Forecast { key, lines: lines.collect(), can_land: false, message: String::new() }
        }
    }))
}

/// Lands an agent's work while the screen is away: hooks and passphrases of git have the terminal.
pub(super) async fn land(
    fleet: &Fleet<'_>,
    board: &FleetBoard,
    key: AgentKey,
    message: Option<String>,
) -> Result<Code> {
    let row = board.row(&key)?;
    let told = merge::from_view(&fleet_of(fleet, &key)?, &row, message).await?;
    // The view shows it when it has the terminal again.
    crate::report::note(&told);
    Ok(Code::Done)
}

/// What a verb printed, on one line.
fn text(out: &[u8]) -> String {
    let text = String::from_utf8_lossy(out);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
