//! From what somebody typed to the one thing it means.
//!
//! Owns: a prefix means an id when it is the beginning of exactly one that the caller may name; a number means what has it in
//! the session. What is one thing's number and the beginning of another one's id is ambiguous.
//! Refuses: guessing. An ambiguous prefix is an error that lists what it could mean.

use sqlx::QueryBuilder;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::ids::{AgentId, IdPrefix, SessionId, TaskId};
use super::row::{self, agent_columns, session_columns, task_columns};
use super::types::{Agent, Session, Task};
use super::{Broker, BrokerError};

/// How many candidates an ambiguous prefix shows.
const CANDIDATES: i64 = 5;

/// What a prefix turned out to mean.
pub(super) enum PrefixMatch<T> {
    None,
    One(T),
    Many(Vec<String>),
}

impl<T> PrefixMatch<T> {
    /// The one, or the error for none, or the error for many.
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
    /// `SessionNotFound`, `Ambiguous`, or the store's.
    pub async fn session(&mut self, given: &IdPrefix) -> Result<Session, BrokerError> {
        let found = find_session(self.db.conn().await?, given).await.map_err(|e| self.db.words(e))?;
        found.one(given, || BrokerError::SessionNotFound(given.given().to_owned()))
    }

    /// The acting agent: any agent of the session, active or not.
    ///
    /// # Errors
    /// `NotAMember`, `Ambiguous`, or the store's.
    pub async fn member(&mut self, session: SessionId, given: &IdPrefix) -> Result<Agent, BrokerError> {
        let found = find_agent(self.db.conn().await?, session, given).await.map_err(|e| self.db.words(e))?;
        found.one(given, || BrokerError::NotAMember { agent: given.given().to_owned(), session })
    }

    /// A task with an end in the session.
    ///
    /// # Errors
    /// `TaskNotFound`, `Ambiguous`, or the store's.
    pub async fn task(&mut self, session: SessionId, given: &IdPrefix) -> Result<Task, BrokerError> {
        let found = find_task(self.db.conn().await?, session, given).await.map_err(|e| self.db.words(e))?;
        found.one(given, || BrokerError::TaskNotFound(given.given().to_owned()))
    }
}

pub(super) async fn find_session(
    conn: &mut SqliteConnection,
    given: &IdPrefix,
) -> Result<PrefixMatch<Session>, sqlx::Error> {
    let rows = sqlx::query(concat!(
        "SELECT ",
        session_columns!(),
        " FROM sessions s WHERE s.session_id >= $1 AND s.session_id < $2 ORDER BY s.session_id LIMIT $3"
    ))
    .bind(given.low())
    .bind(given.high())
    .bind(CANDIDATES)
    .fetch_all(conn)
    .await?;
    one_of(&rows, row::session, |session| session.id.to_string())
}

pub(super) async fn find_agent(
    conn: &mut SqliteConnection,
    session: SessionId,
    given: &IdPrefix,
) -> Result<PrefixMatch<Agent>, sqlx::Error> {
    let sql = concat!(
        "SELECT ",
        agent_columns!(),
        " WHERE ((a.agent_id >= $1 AND a.agent_id < $2) OR a.number = $5) AND a.session_id = $3 \
         ORDER BY a.agent_id LIMIT $4"
    );
    let rows = candidates(conn, sql, session, given).await?;
    one_of(&rows, row::agent, |agent| agent.id.to_string())
}

/// Whether any agent of any session has this id.
pub(super) async fn agent_exists(conn: &mut SqliteConnection, given: &IdPrefix) -> Result<bool, sqlx::Error> {
    let found = sqlx::query("SELECT agent_id FROM agents WHERE agent_id >= $1 AND agent_id < $2 LIMIT 1")
        .bind(given.low())
        .bind(given.high())
        .fetch_optional(conn)
        .await?;
    Ok(found.is_some())
}

pub(super) async fn find_task(
    conn: &mut SqliteConnection,
    session: SessionId,
    given: &IdPrefix,
) -> Result<PrefixMatch<Task>, sqlx::Error> {
    let sql = concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE ((task_id >= $1 AND task_id < $2) OR number = $5) AND EXISTS (SELECT 1 FROM agents a \
         WHERE a.agent_id IN (tasks.context_id, tasks.from_agent_id) AND a.session_id = $3) \
         ORDER BY task_id LIMIT $4"
    );
    let rows = candidates(conn, sql, session, given).await?;
    one_of(&rows, row::task, |task| task.id.to_string())
}

/// The task with exactly this id, whatever its session.
pub(super) async fn task_by_id(conn: &mut SqliteConnection, id: TaskId) -> Result<Option<Task>, sqlx::Error> {
    let found = sqlx::query(concat!("SELECT ", task_columns!(), " FROM tasks WHERE task_id = $1"))
        .bind(id.to_string())
        .fetch_optional(conn)
        .await?;
    found.as_ref().map(row::task).transpose()
}

/// The agent with exactly this id.
pub(super) async fn agent_by_id(
    conn: &mut SqliteConnection,
    id: AgentId,
) -> Result<Option<Agent>, sqlx::Error> {
    let found = sqlx::query(concat!("SELECT ", agent_columns!(), " WHERE a.agent_id = $1"))
        .bind(id.to_string())
        .fetch_optional(conn)
        .await?;
    found.as_ref().map(row::agent).transpose()
}

/// The agents with exactly these ids. The statement is one of as many as `ids` can be long.
pub(super) async fn agents_by_id(
    conn: &mut SqliteConnection,
    ids: &[AgentId],
) -> Result<Vec<Agent>, sqlx::Error> {
    let mut query = QueryBuilder::new(concat!("SELECT ", agent_columns!(), " WHERE a.agent_id IN ("));
    let mut list = query.separated(", ");
    for id in ids {
        list.push_bind(id.to_string());
    }
    query.push(")");
    query.build().fetch_all(conn).await?.iter().map(row::agent).collect()
}

/// The rows whose id begins as given, or that have the given number: `$1` to `$5` of `sql`.
async fn candidates(
    conn: &mut SqliteConnection,
    sql: &'static str,
    session: SessionId,
    given: &IdPrefix,
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    let query = sqlx::query(sql).bind(given.low()).bind(given.high()).bind(session.to_string());
    query.bind(CANDIDATES).bind(given.number()).fetch_all(conn).await
}

fn one_of<T>(
    rows: &[SqliteRow],
    read: impl Fn(&SqliteRow) -> Result<T, sqlx::Error>,
    name: impl Fn(&T) -> String,
) -> Result<PrefixMatch<T>, sqlx::Error> {
    match rows {
        [] => Ok(PrefixMatch::None),
        [row] => Ok(PrefixMatch::One(read(row)?)),
        rows => Ok(PrefixMatch::Many(
            rows.iter().map(|row| read(row).map(|found| name(&found))).collect::<Result<_, _>>()?,
        )),
    }
}
