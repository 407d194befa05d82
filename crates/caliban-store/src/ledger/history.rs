//! Sums of spending by day, repo, model, label or agent, for `caliban budget history` and the pages.

use std::path::PathBuf;

use caliban_core::budget::Spent;
use jiff::civil::Date;
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use sqlx::{AssertSqlSafe, Row};

use super::{AccountId, Ledger, meters};
use crate::StoreError;

/// Maximum number of lines in an answer.
const LINES: i64 = 10_000;

/// What sums are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// The day, in the machine's time zone.
    Day,
    /// The repo.
    Repo,
    /// The model.
    Model,
    /// The agent's label; agents without one form one group.
    Label,
    /// The agent.
    Agent,
}

impl By {
    fn column(self) -> &'static str {
        match self {
            Self::Day => "h.day",
            Self::Repo => "a.repo",
            Self::Model => "h.model",
            Self::Label => "a.label",
            Self::Agent => "a.id",
        }
    }
}

/// Restricts the sums; an empty filter includes everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// From this day on.
    pub since: Option<Date>,
    /// Up to this day.
    pub until: Option<Date>,
    /// Of this repo.
    pub repo: Option<PathBuf>,
}

/// A sum, and as JSON what `caliban budget history --json` prints. Fields that it is not grouped by are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SpendingSum {
    /// The day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<Date>,
    /// The repo's root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo: Option<PathBuf>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The label, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "short")]
    pub agent: Option<AccountId>,
    /// The number of requests.
    pub requests: u64,
    /// What they spent.
    #[serde(flatten, serialize_with = "figures")]
    pub spent: Spent,
}

fn short<S: Serializer>(agent: &Option<AccountId>, to: S) -> Result<S::Ok, S::Error> {
    agent.as_ref().map(AccountId::short).serialize(to)
}

fn figures<S: Serializer>(spent: &Spent, to: S) -> Result<S::Ok, S::Error> {
    let usage = spent.usage;
    let mut map = to.serialize_map(None)?;
    for (name, amount) in [
        ("tokens", usage.total()),
        ("input", usage.input),
        ("output", usage.output),
        ("cache_read", usage.cache_read),
        ("cache_write", usage.cache_write),
        ("micro_usd", spent.usd.0),
        ("unpriced", spent.unpriced),
        ("wall_ms", spent.wall_ms),
    ] {
        map.serialize_entry(name, &amount)?;
    }
    map.end()
}

impl Ledger {
    /// Settled spending, grouped by all of `by` together: `[Day, Model]` gives a line for each day and model, ordered
    /// by them. Requests in flight are not included.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn history(&mut self, by: &[By], filter: &Filter) -> Result<Vec<SpendingSum>, StoreError> {
        let mut columns: Vec<&str> = by.iter().map(|by| by.column()).collect();
        // One group of everything; no line if there is nothing.
        if columns.is_empty() {
            columns.push("1");
        }
        let pick = |by_what: By, name: &str| {
            let column = if by.contains(&by_what) { by_what.column() } else { "NULL" };
            format!("{column} AS {name}")
        };
        let sums = [
            "requests",
            "input",
            "output",
            "cache_read",
            "cache_write",
            "usd",
            "turns",
            "wall_ms",
            "unpriced",
        ];
        let sql = format!(
            "SELECT {}, {}, {}, {}, {}, {} FROM history h JOIN accounts a ON a.seq = h.account \
             WHERE ($1 IS NULL OR h.day >= $1) AND ($2 IS NULL OR h.day <= $2) AND ($3 IS NULL OR a.repo = $3) \
             GROUP BY {group} ORDER BY {group} LIMIT {LINES}",
            pick(By::Day, "day"),
            pick(By::Repo, "repo"),
            pick(By::Model, "model"),
            pick(By::Label, "label"),
            pick(By::Agent, "agent"),
            sums.map(|sum| format!("SUM(h.{sum}) AS {sum}")).join(", "),
            group = columns.join(", "),
        );
        let conn = self.db.conn().await?;
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(filter.since.map(|day| day.to_string()))
            .bind(filter.until.map(|day| day.to_string()))
            .bind(filter.repo.as_ref().map(|repo| repo.to_string_lossy().into_owned()))
            .fetch_all(conn)
            .await
            .map_err(|error| self.db.words(error))?;
        let line = |row: &sqlx::sqlite::SqliteRow| SpendingSum {
            day: row.get::<Option<&str>, _>("day").and_then(|day| day.parse().ok()),
            repo: row.get::<Option<String>, _>("repo").map(PathBuf::from),
            model: row.get("model"),
            label: row.get("label"),
            agent: row.get::<Option<String>, _>("agent").map(AccountId),
            requests: meters::amount(row, "requests"),
            spent: meters::spent(row),
        };
        Ok(rows.iter().map(line).collect())
    }
}
