//! Sending to one agent, or to all.
//!
//! Owns what makes a retry safe: the same id twice is one message, and an id that already belongs
//! to a different message is refused. The recipients' bells ring after the commit.

use std::collections::{BTreeMap, HashSet};

use sqlx::QueryBuilder;

use super::ids::{IdPrefix, SessionId, TaskId};
use super::resolve::{PrefixMatch, agent_by_id, agent_exists, find_agent, task_by_id};
use super::row::{self, agent_columns, task_columns};
use super::types::{Agent, AgentStatus, Delivery, DeliveryState, Task, TaskKind, TaskState};
use super::{Broker, BrokerError, limits};
use crate::Stamp;
use crate::ask::{Ask, ReadAs};
use crate::open::Tx;

/// Maximum number of rows that one statement reads or writes. The connection caches one statement for each smaller
/// number, too.
pub(super) const ROWS: usize = 32;

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The session.
    pub session: SessionId,
    /// The sender.
    pub from: IdPrefix,
    /// The recipient.
    pub to: IdPrefix,
    /// The body.
    pub text: String,
    /// A caller-chosen id that makes a retry safe.
    pub id: Option<TaskId>,
}

/// A message to all other agents of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBroadcast {
    /// The session.
    pub session: SessionId,
    /// The sender.
    pub from: IdPrefix,
    /// The body.
    pub text: String,
    /// A caller-chosen id of the summary, which makes a retry safe.
    pub id: Option<TaskId>,
}

/// Whether a send stored something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// It was stored by this call.
    New,
    /// It was stored before, under the same id.
    Repeated,
}

/// A stored message with its recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentMessage {
    /// The message.
    pub task: Task,
    /// Its recipient, with the pane to type into.
    pub recipient: Agent,
    /// New, or a repetition.
    pub freshness: Freshness,
}

/// A stored broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broadcast {
    /// The sender's record.
    pub summary: Task,
    /// The agents that got a message, with their panes.
    pub recipients: Vec<Agent>,
    /// New, or a repetition.
    pub freshness: Freshness,
}

impl Broker {
    /// Stores a message and rings its recipient's bell.
    ///
    /// # Errors
    /// `SenderNotActive`, `NotYours`, `DestinationNotFound`, `DestinationNotInSession`, `IdTaken`, `Ambiguous`,
    /// `TooFast`, `TooManyHops`, or a failure of the store; then nothing is stored.
    pub async fn send(&mut self, new: &NewMessage, now: Stamp) -> Result<SentMessage, BrokerError> {
        let mut answers = self.send_all(std::slice::from_ref(new), now).await?;
        answers.pop().unwrap_or_else(|| Err(BrokerError::DestinationNotFound(new.to.given().to_owned())))
    }

    /// Stores a message for every other active agent but the Administrator, and a summary for the
    /// sender, all or nothing; then rings their bells.
    ///
    /// # Errors
    /// `SenderNotActive`, `NotYours`, `IdTaken`, `Ambiguous`, `TooFast`, `TooManyHops`, or a failure of the store; then nothing is
    /// stored.
    pub async fn broadcast(&mut self, new: &NewBroadcast, now: Stamp) -> Result<Broadcast, BrokerError> {
        let id = new.id.unwrap_or_else(TaskId::random);
        let speaker = self.speaker.clone();
        let mut tx = self.db.begin().await?;
        let outcome: Result<Broadcast, BrokerError> = async {
            let tx = &mut tx;
            let from = active_sender(found(tx, new.session, &new.from).await?, &new.from)?;
            speaker.check(tx, &from).await?;
            if task_by_id(tx, id).await?.is_some() {
                return known_broadcast(tx, id, &from, &new.text).await;
            }
            let hops = limits::hops(tx, &speaker).await?;
            limits::take_one(tx, &speaker, now).await?;
            let recipients = others(tx, &from).await?;
            let summary = Task {
                to: None,
                kind: TaskKind::BroadcastSummary,
                state: TaskState::Completed,
                origin: Some(id),
                text: format!("Broadcast sent to {} recipients", recipients.len()),
                hops,
                ..message(id, &from, &from, "", None, now)
            };
            let copies = recipients.iter().map(|recipient| Task {
                hops,
                ..message(id.beside(), &from, recipient, &new.text, Some(id), now)
            });
            let all = std::iter::once(summary).chain(copies).map(|task| (from.session, task)).collect();
            let Some(Some(summary)) = insert_tasks(tx, all, vec![id]).await?.into_iter().next() else {
                return Err(BrokerError::IdTaken(id));
            };
            Ok(Broadcast { summary, recipients, freshness: Freshness::New })
        }
        .await;
        let done = tx.finish(outcome).await?;
        for recipient in &done.recipients {
            self.signals.ring(&recipient.id.to_string()).await;
        }
        Ok(done)
    }
}

/// The stored message of a retry, if it is the same one; else the refusal.
pub(super) async fn known_message(
    tx: &mut Tx<'_>,
    id: TaskId,
    new: &NewMessage,
    refusal: BrokerError,
) -> Result<SentMessage, BrokerError> {
    let known = task_by_id(tx, id).await?;
    let same = |task: &Task| task.kind == TaskKind::Unicast && task.origin.is_none() && task.text == new.text;
    let Some(task) = known.filter(same) else { return Err(refusal) };
    let sender = agent_by_id(tx, task.from).await?;
    match agent_by_id(tx, task.context).await? {
        Some(recipient)
            if recipient.session == new.session
                && new.to.means(&recipient)
                && sender.is_some_and(|sender| new.from.means(&sender)) =>
        {
            Ok(SentMessage { task, recipient, freshness: Freshness::Repeated })
        }
        _ => Err(refusal),
    }
}

/// The stored broadcast of a retry, if it is the same one.
async fn known_broadcast(
    tx: &mut Tx<'_>,
    id: TaskId,
    from: &Agent,
    text: &str,
) -> Result<Broadcast, BrokerError> {
    let taken = || BrokerError::IdTaken(id);
    let known = task_by_id(tx, id).await?;
    let summary = known
        .filter(|task| task.kind == TaskKind::BroadcastSummary && task.from == from.id)
        .ok_or_else(taken)?;
    let copies = sqlx::query(concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE origin_task_id = $1 AND type = 'unicast' AND seq > $2 ORDER BY seq"
    ))
    .bind(id.to_string())
    .bind(summary.seq)
    .read_as(row::task)
    .all(tx)
    .await?;
    let mut recipients = Vec::with_capacity(copies.len());
    for copy in copies {
        if copy.text != text {
            return Err(taken());
        }
        let agent = agent_by_id(tx, copy.context).await?;
        recipients.extend(agent);
    }
    Ok(Broadcast { summary, recipients, freshness: Freshness::Repeated })
}

/// The agent of the session that `given` means.
pub(super) async fn found(
    tx: &mut Tx<'_>,
    session: SessionId,
    given: &IdPrefix,
) -> Result<PrefixMatch<Agent>, BrokerError> {
    Ok(find_agent(tx, session, given).await?)
}

pub(super) fn active_sender(found: PrefixMatch<Agent>, given: &IdPrefix) -> Result<Agent, BrokerError> {
    let refused = || BrokerError::SenderNotActive(given.given().to_owned());
    let agent = found.one(given, refused)?;
    if agent.status == AgentStatus::Active { Ok(agent) } else { Err(refused()) }
}

pub(super) async fn destination(
    tx: &mut Tx<'_>,
    found: PrefixMatch<Agent>,
    given: &IdPrefix,
) -> Result<Agent, BrokerError> {
    let not_found = || BrokerError::DestinationNotFound(given.given().to_owned());
    match found.one(given, not_found) {
        Ok(agent) if agent.status == AgentStatus::Active => Ok(agent),
        Ok(_) => Err(not_found()),
        Err(BrokerError::DestinationNotFound(given_text)) => {
            if agent_exists(tx, given).await? {
                Err(BrokerError::DestinationNotInSession(given_text))
            } else {
                Err(BrokerError::DestinationNotFound(given_text))
            }
        }
        Err(other) => Err(other),
    }
}

/// All recipients of a broadcast.
async fn others(tx: &mut Tx<'_>, from: &Agent) -> Result<Vec<Agent>, BrokerError> {
    Ok(sqlx::query(concat!(
        "SELECT ",
        agent_columns!(),
        " WHERE a.session_id = $1 AND a.status = 'active' AND a.kind = 'user' AND a.agent_id <> $2 ORDER BY a.seq"
    ))
    .bind(from.session.to_string())
    .bind(from.id.to_string()).read_as(row::agent).all(tx).await?)
}

pub(super) fn message(
    id: TaskId,
    from: &Agent,
    to: &Agent,
    text: &str,
    origin: Option<TaskId>,
    now: Stamp,
) -> Task {
    Task {
        seq: 0,
        number: None,
        id,
        context: to.id,
        from: from.id,
        to: Some(to.id),
        kind: TaskKind::Unicast,
        created_at: now,
        state: TaskState::InputRequired,
        status_at: now,
        origin,
        text: text.to_owned(),
        delivery: Delivery { state: DeliveryState::Stored, note: None },
        hops: 0,
    }
}

/// Inserts tasks in order and assigns their numbers in their sessions; `None` for a task whose id is taken. Only ids
/// that callers have chosen (`given`) can be. Uses few statements for all tasks: each one is a round trip to the
/// database's thread.
pub(super) async fn insert_tasks(
    tx: &mut Tx<'_>,
    tasks: Vec<(SessionId, Task)>,
    given: Vec<TaskId>,
) -> Result<Vec<Option<Task>>, BrokerError> {
    let mut taken = taken(tx, given).await?;
    let mut placed: Vec<_> =
        tasks.into_iter().map(|(session, task)| taken.insert(task.id).then_some((session, task))).collect();
    let mut new_ones: BTreeMap<SessionId, i64> = BTreeMap::new();
    for (session, _) in placed.iter().flatten() {
        *new_ones.entry(*session).or_default() += 1;
    }
    for (session, count) in new_ones {
        let last: i64 = sqlx::query_scalar(
            "UPDATE sessions SET last_task = last_task + $1 WHERE session_id = $2 RETURNING last_task",
        )
        .bind(count)
        .bind(session.to_string())
        .one(tx)
        .await?;
        let own = placed.iter_mut().flatten().filter(|(of, _)| *of == session);
        for ((_, task), number) in own.zip(last - count + 1..) {
            task.number = Some(number);
        }
    }
    let mut tasks: Vec<Option<Task>> = placed.into_iter().map(|it| it.map(|(_, task)| task)).collect();
    let mut new_rows: Vec<&mut Task> = tasks.iter_mut().flatten().collect();
    for some in new_rows.chunks_mut(ROWS) {
        insert_rows(tx, some).await?;
    }
    Ok(tasks)
}

/// Those of the ids that other tasks have.
async fn taken(tx: &mut Tx<'_>, given: Vec<TaskId>) -> Result<HashSet<TaskId>, BrokerError> {
    let mut taken = HashSet::new();
    for some in given.chunks(ROWS) {
        let mut query = QueryBuilder::new("SELECT task_id FROM tasks WHERE task_id IN (");
        let mut list = query.separated(", ");
        for id in some {
            list.push_bind(id.to_string());
        }
        query.push(")");
        let found = query.build_query_scalar::<String>().all(tx).await?;
        taken.extend(found.iter().filter_map(|id| TaskId::parse(id)));
    }
    Ok(taken)
}

/// Inserts rows with one statement, and reads their sequence numbers.
async fn insert_rows(tx: &mut Tx<'_>, tasks: &mut [&mut Task]) -> Result<(), BrokerError> {
    let mut query = QueryBuilder::new(
        "INSERT INTO tasks (task_id, context_id, from_agent_id, to_agent_id, type, created_at, status_state, \
         status_timestamp, origin_task_id, text, delivery_state, hops, number) ",
    );
    query.push_values(tasks.iter(), |mut row, task| {
        row.push_bind(task.id.to_string())
            .push_bind(task.context.to_string())
            .push_bind(task.from.to_string())
            .push_bind(task.to.map(|id| id.to_string()).unwrap_or_default())
            .push_bind(task.kind.as_str())
            .push_bind(task.created_at.to_string())
            .push_bind(task.state.as_str())
            .push_bind(task.status_at.to_string())
            .push_bind(task.origin.map(|id| id.to_string()))
            .push_bind(task.text.clone())
            .push_bind(task.delivery.state.as_str())
            .push_bind(i64::from(task.hops))
            .push_bind(task.number);
    });
    // The rows of one statement are numbered one after the other. Returned rows would wake this thread for each of them.
    let done = query.build().execute(tx.conn()).await.map_err(|e| tx.words(e))?;
    let seqs = done.last_insert_rowid() - i64::try_from(tasks.len()).unwrap_or_default() + 1..;
    for (task, seq) in tasks.iter_mut().zip(seqs) {
        task.seq = seq;
    }
    Ok(())
}
