//! An agent has reached a limit and a person can be asked: which agent puts the question, and what a yes raises.
//!
//! There is one question per limit: of all agents that reach it one asks, and the others wait for the outcome. A yes
//! raises the limit that `caliban budget set` would set; a day's limit is raised for that day only.

use caliban_core::budget::{Kind, Limits};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::meters::limits_text;
use super::pools::limits_in;
use super::settle::owner;
use super::{AccountId, Ledger, Pool, ReservationOwner};
use crate::StoreError;

/// A limit that a request would exceed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// The pool that it limits.
    pub pool: Pool,
    /// The unit that it limits.
    pub kind: Kind,
    /// The limit at that time.
    pub limit: u64,
    /// The settings' limits for the pool.
    pub of_settings: Limits,
}

/// Which agent asks about a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskTurn {
    /// The caller: it asks, and closes the question.
    Ours,
    /// This other agent is already asking.
    Others(AccountId),
    /// A person has said no since the caller reached the limit.
    Denied,
}

/// An agent that has reached a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitAsker<'a> {
    /// The agent.
    pub account: &'a AccountId,
    /// Its process.
    pub owner: &'a ReservationOwner,
    /// When it reached the limit, in milliseconds since 1970.
    pub since_ms: u64,
}

/// How a question ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionEnd {
    /// Without a no: the waiting agents check the limit themselves.
    Open,
    /// With a no at this time, which answers the waiting agents, too.
    Denied(u64),
}

impl Ledger {
    /// Raises a limit, unless it was changed meanwhile. Returns whether it was raised.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn raise(&mut self, reached: &Reached, by: u64) -> Result<bool, StoreError> {
        let mut tx = self.db.begin().await?;
        let raised = raise(tx.conn(), reached, by).await.map_err(|error| tx.words(error));
        tx.finish(raised).await
    }

    /// Decides which agent asks about the limits of a pool. `is_dead` reports whether a process is gone.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn take_question(
        &mut self,
        pool: &Pool,
        asker: LimitAsker<'_>,
        is_dead: impl Fn(&ReservationOwner) -> bool,
    ) -> Result<AskTurn, StoreError> {
        let mut tx = self.db.begin().await?;
        let turn = take(tx.conn(), pool, asker, is_dead).await.map_err(|error| tx.words(error));
        tx.finish(turn).await
    }

    /// Closes the question that the caller has put.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn close_question(
        &mut self,
        pool: &Pool,
        asker: LimitAsker<'_>,
        closed: QuestionEnd,
    ) -> Result<(), StoreError> {
        let (kind, subject) = pool.key();
        let statement = match closed {
            QuestionEnd::Open => {
                sqlx::query("DELETE FROM questions WHERE kind = $1 AND subject = $2 AND account = $3")
            }
            QuestionEnd::Denied(_) => sqlx::query(
                "UPDATE questions SET denied_ms = $4 WHERE kind = $1 AND subject = $2 AND account = $3",
            ),
        };
        let statement = statement.bind(kind).bind(subject).bind(asker.account.as_str());
        let statement = match closed {
            QuestionEnd::Open => statement,
            QuestionEnd::Denied(now) => statement.bind(i64::try_from(now).unwrap_or(i64::MAX)),
        };
        self.db.run(statement).await.map(drop)
    }
}

async fn raise(conn: &mut SqliteConnection, reached: &Reached, by: u64) -> Result<bool, sqlx::Error> {
    let pool = &reached.pool;
    let now = limits_in(&mut *conn, pool, reached.of_settings).await?.unwrap_or(reached.of_settings);
    if now.of(reached.kind) != Some(reached.limit) {
        return Ok(false);
    }
    let text = limits_text(now.with(reached.kind, reached.limit.saturating_add(by)));
    let (kind, subject) = pool.key();
    let statement = match (pool, pool.set_limit()) {
        (Pool::Agent(_), _) => {
            sqlx::query("UPDATE accounts SET own_limits = $1 WHERE id = $2").bind(text).bind(subject)
        }
        (Pool::Tree(_), _) => {
            sqlx::query("UPDATE accounts SET tree_limits = $1 WHERE id = $2").bind(text).bind(subject)
        }
        // The raise applies where the same limit applies: the settings of another repo may have another one.
        (_, Some(whose)) => sqlx::query(
            "INSERT INTO raised (limits, subject, kind, instead_of) VALUES ($1, $2, $3, \
               coalesce((SELECT limits FROM limits WHERE kind = $3 AND subject = $4), $5)) \
             ON CONFLICT (kind, subject, instead_of) DO UPDATE SET limits = excluded.limits",
        )
        .bind(text)
        .bind(subject)
        .bind(kind)
        .bind(whose.key().1)
        .bind(limits_text(reached.of_settings)),
        (_, None) => return Ok(false),
    };
    Ok(statement.execute(conn).await?.rows_affected() > 0)
}

async fn take(
    conn: &mut SqliteConnection,
    pool: &Pool,
    asker: LimitAsker<'_>,
    is_dead: impl Fn(&ReservationOwner) -> bool,
) -> Result<AskTurn, sqlx::Error> {
    let (kind, subject) = pool.key();
    let found = sqlx::query("SELECT * FROM questions WHERE kind = $1 AND subject = $2")
        .bind(kind)
        .bind(&subject)
        .fetch_optional(&mut *conn)
        .await?;
    if let Some(row) = found {
        let denied: Option<i64> = row.get("denied_ms");
        let by = AccountId(row.get("account"));
        let is_ours = by == *asker.account && owner(&row) == *asker.owner;
        match denied.map(|at| u64::try_from(at).unwrap_or_default()) {
            Some(at) if at >= asker.since_ms => return Ok(AskTurn::Denied),
            Some(_) => {}
            None if is_ours || is_dead(&owner(&row)) => {}
            None => return Ok(AskTurn::Others(by)),
        }
    }
    sqlx::query(
        "INSERT INTO questions (kind, subject, account, boot, pid, started) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (kind, subject) DO UPDATE SET account = excluded.account, boot = excluded.boot, \
           pid = excluded.pid, started = excluded.started, denied_ms = NULL",
    )
    .bind(kind)
    .bind(&subject)
    .bind(asker.account.as_str())
    .bind(&asker.owner.boot)
    .bind(asker.owner.pid)
    .bind(i64::try_from(asker.owner.started).unwrap_or(i64::MAX))
    .execute(conn)
    .await?;
    Ok(AskTurn::Ours)
}
