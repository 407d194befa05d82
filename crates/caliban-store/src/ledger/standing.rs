//! How the pools stand, and the limits that a person sets for days.

use std::path::PathBuf;

use caliban_core::budget::{Limits, Meter};
use jiff::civil::Date;
use sqlx::Row;

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
    /// An agent and all below it.
    Tree(AccountId),
    /// All agents of a repo on a day.
    RepoDay(PathBuf, Date),
    /// All agents on a day.
    Day(Date),
    /// All that was ever spent.
    Everything,
}

/// How a pool stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Spent and held.
    pub meter: Meter,
    /// The limits that the ledger has for it: an agent's, or what a person has set for a day. Those of the settings are not
    /// in it.
    pub limits: Option<Limits>,
}

/// Whose limit a person sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetLimit {
    /// Of a repo, for each day.
    RepoDay(PathBuf),
    /// Of all agents, for each day.
    Day,
}

impl SetLimit {
    fn key(&self) -> (&'static str, String) {
        match self {
            Self::RepoDay(repo) => ("repo_day", repo.to_string_lossy().into_owned()),
            Self::Day => ("day", String::new()),
        }
    }
}

impl Ledger {
    /// How a pool stands now; nothing where nobody has spent from it.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn pool(&mut self, pool: &Pool) -> Result<PoolState, StoreError> {
        let (kind, subject) = match pool {
            Pool::Agent(id) => ("agent", id.as_str().to_owned()),
            Pool::Tree(id) => ("tree", id.as_str().to_owned()),
            Pool::RepoDay(repo, day) => ("repo_day", repo_day(*day, &repo.to_string_lossy())),
            Pool::Day(day) => ("day", day.to_string()),
            Pool::Everything => ("all", EVERYTHING.to_owned()),
        };
        let conn = self.db.conn().await?;
        let row = sqlx::query("SELECT * FROM meters WHERE kind = $1 AND subject = $2")
            .bind(kind)
            .bind(&subject)
            .fetch_optional(conn)
            .await
            .map_err(|error| self.db.words(error))?;
        let limits = match pool {
            Pool::Agent(id) => self.account_limits("own_limits", id).await?,
            Pool::Tree(id) => self.account_limits("tree_limits", id).await?,
            Pool::RepoDay(repo, _) => self.set_limit(&SetLimit::RepoDay(repo.clone())).await?,
            Pool::Day(_) => self.set_limit(&SetLimit::Day).await?,
            Pool::Everything => None,
        };
        Ok(PoolState { meter: row.as_ref().map(meters::meter).unwrap_or_default(), limits })
    }

    async fn account_limits(&mut self, column: &str, id: &AccountId) -> Result<Option<Limits>, StoreError> {
        let conn = self.db.conn().await?;
        let row = sqlx::query("SELECT own_limits, tree_limits FROM accounts WHERE id = $1")
            .bind(id.as_str())
            .fetch_optional(conn)
            .await;
        let row = row.map_err(|error| self.db.words(error))?;
        Ok(row.map(|row| limits_of(row.get(column))))
    }

    /// The limit that a person has set, if one has.
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

    /// Sets a limit in place of the settings', or takes it away again. It holds from the next request on.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn change_limit(&mut self, whose: &SetLimit, limits: Option<Limits>) -> Result<(), StoreError> {
        let (kind, subject) = whose.key();
        self.db
            .write(async |tx: &mut Tx<'_>| -> Result<(), StoreError> {
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
