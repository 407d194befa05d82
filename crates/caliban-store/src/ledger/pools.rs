//! The state of the pools, and the limits that a person sets for days.

use std::path::PathBuf;

use caliban_core::budget::{Limits, Meter};
use jiff::civil::Date;
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::meters::{self, limits_of, limits_text};
use super::reserve::{EVERYTHING, repo_day};
use super::{AccountId, Ledger};
use crate::StoreError;
use crate::open::Tx;

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pool {
    /// An agent by itself.
    Agent(AccountId),
    /// An agent and all agents below it.
    Tree(AccountId),
    /// All agents of a repo on a day.
    RepoDay(PathBuf, Date),
    /// All agents on a day.
    Day(Date),
    /// Everything ever spent.
    Everything,
}

impl Pool {
    /// The kind and subject of its meter.
    pub(super) fn key(&self) -> (&'static str, String) {
        match self {
            Self::Agent(id) => ("agent", id.as_str().to_owned()),
            Self::Tree(id) => ("tree", id.as_str().to_owned()),
            Self::RepoDay(repo, day) => ("repo_day", repo_day(*day, &repo.to_string_lossy())),
            Self::Day(day) => ("day", day.to_string()),
            Self::Everything => ("all", EVERYTHING.to_owned()),
        }
    }

    /// The limit that a person can set for a pool of a day.
    pub(super) fn set_limit(&self) -> Option<SetLimit> {
        match self {
            Self::RepoDay(repo, _) => Some(SetLimit::RepoDay(repo.clone())),
            Self::Day(_) => Some(SetLimit::Day),
            Self::Agent(_) | Self::Tree(_) | Self::Everything => None,
        }
    }
}

/// The state of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Spent and held.
    pub meter: Meter,
    /// The limits in the ledger: an agent's, or those that a person has set or raised for a day. `None` if the
    /// settings' limits apply.
    pub limits: Option<Limits>,
}

/// A limit that a person can set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetLimit {
    /// Of a repo, for each day.
    RepoDay(PathBuf),
    /// Of all agents, for each day.
    Day,
}

impl SetLimit {
    pub(super) fn key(&self) -> (&'static str, String) {
        match self {
            Self::RepoDay(repo) => ("repo_day", repo.to_string_lossy().into_owned()),
            Self::Day => ("day", String::new()),
        }
    }
}

impl Ledger {
    /// The present state of a pool; empty if nothing was spent from it. The settings' limits decide which raise of a
    /// day applies.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn pool(&mut self, pool: &Pool, of_settings: Limits) -> Result<PoolState, StoreError> {
        let (kind, subject) = pool.key();
        let conn = self.db.conn().await?;
        let row = sqlx::query("SELECT * FROM meters WHERE kind = $1 AND subject = $2")
            .bind(kind)
            .bind(&subject)
            .fetch_optional(conn)
            .await
            .map_err(|error| self.db.words(error))?;
        let conn = self.db.conn().await?;
        let limits = limits_in(conn, pool, of_settings).await.map_err(|error| self.db.words(error))?;
        Ok(PoolState { meter: row.as_ref().map(meters::meter).unwrap_or_default(), limits })
    }

    /// The limit that a person has set, if any.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn set_limit(&mut self, whose: &SetLimit) -> Result<Option<Limits>, StoreError> {
        let (kind, subject) = whose.key();
        let conn = self.db.conn().await?;
        let found =
            sqlx::query_scalar::<_, String>("SELECT limits FROM limits WHERE kind = $1 AND subject = $2")
                .bind(kind)
                .bind(subject)
                .fetch_optional(conn)
                .await;
        found.map(|found| found.map(|text| limits_of(&text))).map_err(|error| self.db.words(error))
    }

    /// Sets a limit in place of the settings', or removes it, together with raises for single days. It applies from the
    /// next request on.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn change_limit(&mut self, whose: &SetLimit, limits: Option<Limits>) -> Result<(), StoreError> {
        let (kind, subject) = whose.key();
        self.db
            .write(async |tx: &mut Tx<'_>| -> Result<(), StoreError> {
                let of_one_day = match whose {
                    SetLimit::Day => sqlx::query("DELETE FROM raised WHERE kind = $1").bind(kind),
                    // The subject begins with the day and a space, before the repo.
                    SetLimit::RepoDay(_) => {
                        sqlx::query("DELETE FROM raised WHERE kind = $1 AND substr(subject, 12) = $2")
                            .bind(kind)
                            .bind(&subject)
                    }
                };
                let cleared = of_one_day.execute(tx.conn()).await;
                cleared.map_err(|error| tx.words(error))?;
                let query = match limits {
                    Some(limits) => sqlx::query(
                        "INSERT INTO limits (kind, subject, limits) VALUES ($1, $2, $3) \
                         ON CONFLICT (kind, subject) DO UPDATE SET limits = excluded.limits",
                    )
                    .bind(kind)
                    .bind(&subject)
                    .bind(limits_text(limits)),
                    None => sqlx::query("DELETE FROM limits WHERE kind = $1 AND subject = $2")
                        .bind(kind)
                        .bind(&subject),
                };
                query.execute(tx.conn()).await.map(drop).map_err(|error| tx.words(error))
            })
            .await
    }
}

/// The limits of a pool in the ledger. For a day: the limit that a person has set for each day, else the settings', and
/// instead of either the raise that a person has granted for that day.
pub(super) async fn limits_in(
    conn: &mut SqliteConnection,
    pool: &Pool,
    of_settings: Limits,
) -> Result<Option<Limits>, sqlx::Error> {
    let column = match pool {
        Pool::Agent(_) => "own_limits",
        Pool::Tree(_) => "tree_limits",
        Pool::RepoDay(..) | Pool::Day(_) => "limits",
        Pool::Everything => return Ok(None),
    };
    let (kind, subject) = pool.key();
    let row = match pool.set_limit() {
        Some(whose) => {
            sqlx::query(
                "SELECT coalesce(r.limits, s.limits) AS limits FROM (SELECT $1 AS kind) k \
                 LEFT JOIN limits s ON s.kind = k.kind AND s.subject = $3 \
                 LEFT JOIN raised r ON r.kind = k.kind AND r.subject = $2 AND r.instead_of = coalesce(s.limits, $4) \
                 WHERE coalesce(r.limits, s.limits) IS NOT NULL",
            )
            .bind(kind)
            .bind(&subject)
            .bind(whose.key().1)
            .bind(limits_text(of_settings))
            .fetch_optional(conn)
            .await?
        }
        None => {
            let query = sqlx::query("SELECT own_limits, tree_limits FROM accounts WHERE id = $1");
            query.bind(&subject).fetch_optional(conn).await?
        }
    };
    Ok(row.map(|row| limits_of(row.get(column))))
}
