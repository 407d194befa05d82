//! At a limit with somebody to ask: who puts the question, and what a yes raises.
//!
//! One question per limit: of all who come to it one asks, the others wait for what comes of it. A yes raises the limit where
//! `caliban budget set` would; of a day, for that day only.

use caliban_core::budget::{Kind, Limits};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::meters::limits_text;
use super::pools::limits_in;
use super::settle::owner;
use super::{AccountId, Ledger, Pool, ReservationOwner};
use crate::StoreError;

/// A limit that is in the way of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// Whose.
    pub pool: Pool,
    /// Of what.
    pub kind: Kind,
    /// The limit, as it was.
    pub limit: u64,
    /// What the settings say about the pool.
    pub of_settings: Limits,
}

/// Whose turn it is to ask about a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskTurn {
    /// The caller's: it asks, and closes the question.
    Ours,
    /// This agent asks already.
    Others(AccountId),
    /// Somebody has said no since the caller came to the limit.
    Denied,
}

/// Who comes to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitAsker<'a> {
    /// The agent.
    pub account: &'a AccountId,
    /// Its process.
    pub owner: &'a ReservationOwner,
    /// When it came to the limit, in milliseconds since 1970.
    pub since_ms: u64,
}

/// How a question ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionEnd {
    /// Without a no: those who wait look for themselves.
    Open,
    /// With a no at this time: those who wait have their answer.
    Denied(u64),
}

impl Ledger {
    /// Raises a limit, unless somebody else has changed it. Whether it was raised.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn raise(&mut self, reached: &Reached, by: u64) -> Result<bool, StoreError> {
        let mut tx = self.db.begin().await?;
        let raised = raise(tx.conn(), reached, by).await.map_err(|error| tx.words(error));
        tx.finish(raised).await
    }

    /// Whose turn it is to ask about the limits of a pool. `is_dead` tells of processes that are gone.
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

    /// The question that the caller has put is closed.
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
        // For those to whom the same limit applies: the settings of another repo may say another one.
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
