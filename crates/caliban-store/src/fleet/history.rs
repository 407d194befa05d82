//! The history of each agent's status: a row for each change. A change of an agent's record is noted in the same
//! transaction; a passing status ([`RegistryChange::Stood`](super::RegistryChange::Stood)) is written with the next
//! one.
//!
//! The history is kept when the agent is removed. Only the newest [`KEPT`] rows are kept.

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{Ending, Status};
use caliban_core::status_word::{StatusFacts, StatusWord};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::{AgentRecord, Registry};
use crate::StoreError;

/// Maximum number of rows.
const KEPT: i64 = 50_000;
/// Old rows are pruned once every so many changes.
const PRUNE_EVERY: i64 = 256;
/// Maximum number of changes returned at once.
const PAGE: i64 = 20_000;

/// A change of state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusChange {
    /// The agent.
    pub agent: AgentId,
    /// The time, in milliseconds since 1970.
    pub at: u64,
    /// The status from then on: `queued`, `running`, `asks`, `waits`, `limited`, `idle`, `done`, `failed`, `budget`,
    /// `killed` or `crashed`.
    pub status: String,
}

impl StatusChange {
    /// The agent has this status from this time on.
    #[must_use]
    pub fn new(agent: AgentId, at: u64, status: &Status) -> Self {
        Self { agent, at, status: word(status).to_owned() }
    }
}

/// The status as one word. Nobody here knows what is asleep, and what has not started is queued.
fn word(status: &Status) -> &'static str {
    let facts = StatusFacts {
        state: status.state(),
        waiting_for: status.waiting_for(),
        asks: false,
        is_over_budget: matches!(status.ending(), Some(Ending::BudgetExceeded { .. })),
        is_queued: true,
        is_asleep: false,
    };
    StatusWord::of(facts).word()
}

/// Adds a row if the status in the agent's record differs from the last row.
pub(super) async fn note(conn: &mut SqliteConnection, record: &AgentRecord) -> Result<(), sqlx::Error> {
    let at = record.updated_at.max(record.created_at);
    write(conn, &StatusChange::new(record.id, at, &record.status)).await
}

/// Adds a row if the status differs from the agent's last row.
pub(super) async fn write(conn: &mut SqliteConnection, change: &StatusChange) -> Result<(), sqlx::Error> {
    let done = sqlx::query(
        "INSERT INTO history (agent, at, status) SELECT $1, $2, $3 \
         WHERE $3 IS NOT (SELECT status FROM history WHERE agent = $1 ORDER BY seq DESC LIMIT 1)",
    )
    .bind(change.agent.to_string())
    .bind(i64::try_from(change.at).unwrap_or(i64::MAX))
    .bind(&change.status)
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 1 && done.last_insert_rowid() % PRUNE_EVERY == 0 {
        let old = "DELETE FROM history WHERE seq <= (SELECT max(seq) FROM history) - $1";
        sqlx::query(old).bind(KEPT).execute(conn).await?;
    }
    Ok(())
}

impl Registry {
    /// The changes of status between two times (milliseconds since 1970), in order; before them, the status of each
    /// agent at the first time.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn history(&mut self, from: u64, to: u64) -> Result<Vec<StatusChange>, StoreError> {
        let stored = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let conn = self.db.conn().await?;
        let rows = sqlx::query(
            "SELECT agent, at, status FROM history WHERE at <= $2 AND (at >= $1 OR seq IN \
             (SELECT max(seq) FROM history WHERE at < $1 GROUP BY agent)) ORDER BY seq LIMIT $3",
        )
        .bind(stored(from))
        .bind(stored(to))
        .bind(PAGE)
        .fetch_all(conn)
        .await
        .map_err(|error| self.db.words(error))?;
        let read = |row: &sqlx::sqlite::SqliteRow| {
            Some(StatusChange {
                agent: row.get::<&str, _>("agent").parse().ok()?,
                at: u64::try_from(row.get::<i64, _>("at")).unwrap_or_default(),
                status: row.get("status"),
            })
        };
        Ok(rows.iter().filter_map(read).collect())
    }
}
#[cfg(test)]
mod tests {
    use caliban_core::lifecycle::LifecycleEvent;

    use super::*;
    use crate::fleet::{RegistryChange, WantedState};
    use crate::{HostId, StoreUrl};

    #[tokio::test]
    async fn r22_a_registry_without_the_table_gets_it_and_each_change_of_state_is_a_row() {
        let dir = tempfile::tempdir().unwrap();
        let url = StoreUrl::sqlite(dir.path().join("fleet.db"));
        let before = crate::open::Schema { steps: &[], ..crate::fleet::SCHEMA };
        crate::open::Db::open(&url, &before).await.unwrap().close().await;
        let mut registry = Registry::open(&url, &HostId::of("here")).await.unwrap();
        let mut record = AgentRecord {
            seq: 1,
            id: "a3f8b2c1".parse().unwrap(),
            key: None,
            status: Status::default(),
            wanted: WantedState::Run,
            nonce: "n".into(),
            runs: 1,
            after: Vec::new(),
            program: "/p".into(),
            has_secrets: false,
            resume_prompt: None,
            note: None,
            created_at: 100,
            updated_at: 100,
        };
        registry.commit(&[RegistryChange::Insert(Box::new(record.clone()), "{}".into())]).await.unwrap();
        for (at, event) in [(200, Some(LifecycleEvent::Started)), (300, None)] {
            if let Some(event) = event {
                record.status = record.status.apply(event).unwrap();
            }
            record.updated_at = at;
            registry.commit(&[RegistryChange::Update(Box::new(record.clone()))]).await.unwrap();
        }
        registry.commit(&[RegistryChange::Delete(record.id)]).await.unwrap();
        let told = async |registry: &mut Registry, from, to| -> Vec<(u64, String)> {
            let changes = registry.history(from, to).await.unwrap();
            changes.into_iter().map(|change| (change.at, change.status)).collect()
        };
        let all = [(100, "queued".to_owned()), (200, "running".to_owned())];
        assert_eq!(told(&mut registry, 0, u64::MAX).await, all, "a removed agent's, too");
        assert_eq!(told(&mut registry, 0, 150).await, all[..1]);
        assert_eq!(told(&mut registry, 250, 400).await, all[1..], "how it stood at the first moment");
    }

    #[test]
    fn an_end_at_a_budget_is_recorded_as_one() {
        let over = caliban_core::lifecycle::Outcome::BudgetExceeded { reason: "its tokens".into() };
        let events = [LifecycleEvent::Started, LifecycleEvent::Ended(over)];
        let ended = events.into_iter().fold(Status::default(), |status, event| status.apply(event).unwrap());
        assert_eq!(word(&ended), "budget");
    }

    #[tokio::test]
    async fn the_newest_changes_are_kept_and_the_old_ones_go_now_and_then() {
        let dir = tempfile::tempdir().unwrap();
        let url = StoreUrl::sqlite(dir.path().join("fleet.db"));
        let mut registry = Registry::open(&url, &HostId::of("here")).await.unwrap();
        let conn = registry.db.conn().await.unwrap();
        let last = 200 * PRUNE_EVERY - 1;
        sqlx::query(
            "WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < $1) \
             INSERT INTO history (seq, agent, at, status) SELECT seq, 'x', seq, 'idle' FROM n",
        )
        .bind(last)
        .execute(&mut *conn)
        .await
        .unwrap();
        let agent = "a3f8b2c1".parse().unwrap();
        // The first row's number triggers pruning, the second changes nothing, the third does not trigger it.
        for (status, oldest) in [
            ("running", last + 1 - KEPT + 1),
            ("running", last + 1 - KEPT + 1),
            ("done", last + 1 - KEPT + 1),
        ] {
            let change = StatusChange { agent, at: 1, status: status.to_owned() };
            write(&mut *conn, &change).await.unwrap();
            let found: i64 =
                sqlx::query_scalar("SELECT min(seq) FROM history").fetch_one(&mut *conn).await.unwrap();
            assert_eq!(found, oldest, "{status}");
        }
    }
}
