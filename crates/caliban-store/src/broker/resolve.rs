//! Resolves what a user typed to the one thing it means.
//!
//! Owns: a prefix means an id if it is the beginning of exactly one that the caller may name; a number means what has
//! that number in the session. A text that is both the number of one thing and the beginning of another one's id is
//! ambiguous. Refuses: guessing. An ambiguous prefix is an error that lists the candidates.

use sqlx::QueryBuilder;

use super::ids::{AgentId, IdPrefix, SessionId, TaskId};
use super::row::{self, agent_columns, session_columns, task_columns};
use super::types::{Agent, Session, Task};
use super::{Broker, BrokerError};
use crate::StoreError;
use crate::ask::{Ask, ReadAs, Source};
use crate::open::Statement;

/// Maximum number of candidates that the error lists.
const CANDIDATES: i64 = 5;

/// The result of resolving a prefix.
pub(super) enum PrefixMatch<T> {
    None,
    One(T),
    Many(Vec<String>),
}

impl<T> PrefixMatch<T> {
    /// The only match, or the error for none or for several.
    pub(super) fn one(self, given: &IdPrefix, none: impl FnOnce() -> BrokerError) -> Result<T, BrokerError> {
        match self {
            Self::None => Err(none()),
            Self::One(found) => Ok(found),
            Self::Many(candidates) => {
                Err(BrokerError::Ambiguous { given: given.given().to_owned(), candidates })
            }
        }
    }
}

impl Broker {
    /// The session, deleted or not.
    ///
    /// # Errors
    /// `SessionNotFound`, `Ambiguous`, or a failure of the store.
    pub async fn session(&mut self, given: &IdPrefix) -> Result<Session, BrokerError> {
        let found = find_session(&mut self.db, given).await?;
        found.one(given, || BrokerError::SessionNotFound(given.given().to_owned()))
    }

    /// The acting agent: any agent of the session, active or not.
    ///
    /// # Errors
    /// `NotAMember`, `Ambiguous`, or a failure of the store.
    pub async fn member(&mut self, session: SessionId, given: &IdPrefix) -> Result<Agent, BrokerError> {
        let found = find_agent(&mut self.db, session, given).await?;
        found.one(given, || BrokerError::NotAMember { agent: given.given().to_owned(), session })
    }

    /// A task whose sender or recipient is in the session.
    ///
    /// # Errors
    /// `TaskNotFound`, `Ambiguous`, or a failure of the store.
    pub async fn task(&mut self, session: SessionId, given: &IdPrefix) -> Result<Task, BrokerError> {
        let found = find_task(&mut self.db, session, given).await?;
        found.one(given, || BrokerError::TaskNotFound(given.given().to_owned()))
    }
}

pub(super) async fn find_session(
    of: &mut impl Source,
    given: &IdPrefix,
) -> Result<PrefixMatch<Session>, StoreError> {
    let found = sqlx::query(concat!(
        "SELECT ",
        session_columns!(),
        " FROM sessions s WHERE s.session_id >= $1 AND s.session_id < $2 ORDER BY s.session_id LIMIT $3"
    ))
    .bind(given.low())
    .bind(given.high())
    .bind(CANDIDATES)
    .read_as(row::session)
    .all(of)
    .await?;
    Ok(one_of(found, |session| session.id.to_string()))
}

pub(super) async fn find_agent(
    of: &mut impl Source,
    session: SessionId,
    given: &IdPrefix,
) -> Result<PrefixMatch<Agent>, StoreError> {
    let sql = concat!(
        "SELECT ",
        agent_columns!(),
        " WHERE ((a.agent_id >= $1 AND a.agent_id < $2) OR a.number = $5) AND a.session_id = $3 \
         ORDER BY a.agent_id LIMIT $4"
    );
    let found = candidates(sql, session, given).read_as(row::agent).all(of).await?;
    Ok(one_of(found, |agent| agent.id.to_string()))
}

/// Whether any agent of any session has this id.
pub(super) async fn agent_exists(of: &mut impl Source, given: &IdPrefix) -> Result<bool, StoreError> {
    let found = sqlx::query("SELECT agent_id FROM agents WHERE agent_id >= $1 AND agent_id < $2 LIMIT 1")
        .bind(given.low())
        .bind(given.high())
        .maybe(of)
        .await?;
    Ok(found.is_some())
}

pub(super) async fn find_task(
    of: &mut impl Source,
    session: SessionId,
    given: &IdPrefix,
) -> Result<PrefixMatch<Task>, StoreError> {
    let sql = concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE ((task_id >= $1 AND task_id < $2) OR number = $5) AND EXISTS (SELECT 1 FROM agents a \
         WHERE a.agent_id IN (tasks.context_id, tasks.from_agent_id) AND a.session_id = $3) \
         ORDER BY task_id LIMIT $4"
    );
    let found = candidates(sql, session, given).read_as(row::task).all(of).await?;
    Ok(one_of(found, |task| task.id.to_string()))
}

/// The task with exactly this id, whatever its session.
pub(super) async fn task_by_id(of: &mut impl Source, id: TaskId) -> Result<Option<Task>, StoreError> {
    sqlx::query(concat!("SELECT ", task_columns!(), " FROM tasks WHERE task_id = $1"))
        .bind(id.to_string())
        .read_as(row::task)
        .maybe(of)
        .await
}

/// The agent with exactly this id.
pub(super) async fn agent_by_id(of: &mut impl Source, id: AgentId) -> Result<Option<Agent>, StoreError> {
    sqlx::query(concat!("SELECT ", agent_columns!(), " WHERE a.agent_id = $1"))
        .bind(id.to_string())
        .read_as(row::agent)
        .maybe(of)
        .await
}

/// The agents with exactly these ids. Each number of `ids` makes a different statement, which the connection caches.
pub(super) async fn agents_by_id(of: &mut impl Source, ids: &[AgentId]) -> Result<Vec<Agent>, StoreError> {
    let mut query = QueryBuilder::new(concat!("SELECT ", agent_columns!(), " WHERE a.agent_id IN ("));
    let mut list = query.separated(", ");
    for id in ids {
        list.push_bind(id.to_string());
    }
    query.push(")");
    query.build().read_as(row::agent).all(of).await
}

/// The statement for rows whose id begins with `given`, or that have the given number: `$1` to `$5` of `sql`.
fn candidates<'q>(sql: &'static str, session: SessionId, given: &'q IdPrefix) -> Statement<'q> {
    let query = sqlx::query(sql).bind(given.low()).bind(given.high()).bind(session.to_string());
    query.bind(CANDIDATES).bind(given.number())
}

fn one_of<T>(mut found: Vec<T>, name: impl Fn(&T) -> String) -> PrefixMatch<T> {
    match found.len() {
        0 | 1 => found.pop().map_or(PrefixMatch::None, PrefixMatch::One),
        _ => PrefixMatch::Many(found.iter().map(name).collect()),
    }
}
