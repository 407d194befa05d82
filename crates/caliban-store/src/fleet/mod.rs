//! The fleet's registry: its agents, the state of each, and what is wanted of it.
//!
//! Owns the tables of agents and of schedules, and the history of the agents' statuses. One daemon writes it; a batch
//! of changes is one transaction, synced before it is acknowledged. Every row names the machine of the daemon that
//! wrote it. The order of agents is `seq`, never a time. An agent's conversation and spending are not here but in its
//! directory.

mod history;
mod row;
mod schedule;
mod schema;

use std::path::PathBuf;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::Status;
use caliban_core::names::Slug;

pub use history::StatusChange;
pub use schedule::{LastRun, Overlap, ScheduleRecord};
pub use schema::SCHEMA;

use crate::open::{Db, OpenReport, Tx};
use crate::{HostId, StoreError, StoreUrl};

/// Maximum number of agents in a page.
const PAGE_ROWS: i64 = 64;
/// Maximum number of bytes of requests and messages in a page; a larger agent is a page of its own.
pub const PAGE_BYTES: i64 = 256 * 1024;

/// An open registry.
#[derive(Debug)]
pub struct Registry {
    db: Db,
    host: HostId,
}

/// One agent, as the registry knows it. Its request is stored beside it, see [`Registry::spec`].
#[derive(Debug, Clone, PartialEq)]
pub struct AgentRecord {
    /// The order of spawning.
    pub seq: i64,
    /// Its id.
    pub id: AgentId,
    /// The caller's idempotency key of the request.
    pub key: Option<String>,
    /// State, what it waits for, how it ended.
    pub status: Status,
    /// What was requested and has not happened yet.
    pub wanted: WantedState,
    /// The id of the run: committed before the process is started, and used for one start only.
    pub nonce: String,
    /// The number of runs, including this one.
    pub runs: u32,
    /// The agents that must still end as `done` before it starts.
    pub after: Vec<AgentId>,
    /// The worker's program.
    pub program: PathBuf,
    /// Whether it cannot run without the secret part of its environment.
    pub has_secrets: bool,
    /// The prompt of a resumed worker.
    pub resume_prompt: Option<String>,
    /// More about its end.
    pub note: Option<String>,
    /// When it was spawned, in milliseconds since 1970.
    pub created_at: u64,
    /// When the record last changed.
    pub updated_at: u64,
}

/// What is wanted of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedState {
    /// It shall do its work.
    Run,
    /// It shall end.
    Kill,
}

/// One change of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum RegistryChange {
    /// A new agent, with its request as JSON.
    Insert(Box<AgentRecord>, String),
    /// The present state of an existing agent.
    Update(Box<AgentRecord>),
    /// An agent was removed.
    Delete(AgentId),
    /// A passing status of an agent, between two changes of its record.
    Stood(StatusChange),
    /// The answer to a request, by the caller's name for the request, as JSON.
    Answer(String, String),
    /// The present state of a schedule, new or existing.
    Schedule(Box<ScheduleRecord>),
    /// A schedule was removed.
    Unschedule(Slug),
}

/// Maximum number of stored answers; the newest are kept.
pub const ANSWERS: i64 = 512;

impl Registry {
    /// Opens the registry for the daemon of `host`, and makes its table if there is none. Once its file was deleted, cut or
    /// replaced it is of no more use: the daemon knows other agents than the file that stands there now.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn open(url: &StoreUrl, host: &HostId) -> Result<Self, StoreError> {
        let db = Db::open(url, &SCHEMA).await?.watched_in_its_directory()?;
        Ok(Self { db, host: host.clone() })
    }

    /// What opening the store did.
    #[must_use]
    pub fn prepared(&self) -> OpenReport {
        self.db.prepared()
    }

    /// The next agents after `after` (0: from the first), in order, each with its request as JSON; empty at the end.
    /// A page is not larger than [`PAGE_BYTES`], unless it is a single agent.
    ///
    /// # Errors
    /// See [`StoreError`]; a row that cannot be read is `Damaged`.
    pub async fn page(&mut self, after: i64) -> Result<Vec<(AgentRecord, String)>, StoreError> {
        let conn = self.db.conn().await?;
        let sizes = sqlx::query_as(
            "SELECT seq, octet_length(spec) + coalesce(octet_length(resume_prompt), 0) FROM agents \
             WHERE seq > $1 ORDER BY seq LIMIT $2",
        );
        let sizes: Result<Vec<(i64, i64)>, _> = sizes.bind(after).bind(PAGE_ROWS).fetch_all(&mut *conn).await;
        let sizes = sizes.map_err(|error| self.db.words(error))?;
        let Some(last) = last_of_page(&sizes) else { return Ok(Vec::new()) };
        let conn = self.db.conn().await?;
        let rows = sqlx::query("SELECT * FROM agents WHERE seq > $1 AND seq <= $2 ORDER BY seq");
        let rows = rows.bind(after).bind(last).fetch_all(conn).await;
        let rows = rows.map_err(|error| self.db.words(error))?;
        let file = self.db.file().path();
        let damaged = |detail| StoreError::Damaged { file: file.to_owned(), detail };
        rows.iter().map(|row| row::read(row).map_err(damaged)).collect()
    }

    /// Frees SQLite's page cache. Best effort.
    pub async fn forget_pages(&mut self) {
        if let Ok(conn) = self.db.conn().await {
            let _kept = sqlx::query("PRAGMA shrink_memory").execute(conn).await;
        }
    }

    /// The request of one agent.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn spec(&mut self, id: AgentId) -> Result<Option<String>, StoreError> {
        let conn = self.db.conn().await?;
        let found = sqlx::query_scalar("SELECT spec FROM agents WHERE id = $1")
            .bind(id.to_string())
            .fetch_optional(conn)
            .await;
        found.map_err(|error| self.db.words(error))
    }

    /// The stored answers, the oldest first: the name of the request, and the answer as JSON.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn answers(&mut self) -> Result<Vec<(String, String)>, StoreError> {
        let conn = self.db.conn().await?;
        let table = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM sqlite_master WHERE name = 'answers'");
        let found = match table.fetch_one(&mut *conn).await {
            // The table is made with the first answer.
            Ok(0) => return Ok(Vec::new()),
            Ok(_) => sqlx::query_as("SELECT request, answer FROM answers ORDER BY seq").fetch_all(conn).await,
            Err(error) => Err(error),
        };
        found.map_err(|error| self.db.words(error))
    }

    /// Makes all changes or none. When it returns `Ok` they are on the disk.
    ///
    /// # Errors
    /// See [`StoreError`]; after [`StoreError::is_unconfirmed`] the outcome is unknown, and nothing may be acknowledged.
    pub async fn commit(&mut self, changes: &[RegistryChange]) -> Result<(), StoreError> {
        let host = &self.host;
        self.db
            .write(async |tx: &mut Tx<'_>| -> Result<(), StoreError> {
                for change in changes {
                    row::write(tx.conn(), host, change).await.map_err(|error| tx.words(error))?;
                }
                Ok(())
            })
            .await?;
        if changes.iter().any(|change| matches!(change, RegistryChange::Delete(_))) {
            // The log still contains what was deleted. Best effort: the next writer tries again.
            self.db.tidy(0).await;
        }
        Ok(())
    }

    /// Closes the registry.
    pub async fn close(self) {
        self.db.close().await;
    }
}

/// The `seq` of the last agent of a page, from the sizes of the next agents.
fn last_of_page(sizes: &[(i64, i64)]) -> Option<i64> {
    let ((first, size), more) = sizes.split_first()?;
    let (mut last, mut bytes) = (*first, *size);
    for (seq, size) in more {
        bytes = bytes.saturating_add(*size);
        if bytes > PAGE_BYTES {
            break;
        }
        last = *seq;
    }
    Some(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use caliban_core::lifecycle::{Ending, LifecycleEvent, Outcome, State};

    fn record(seq: i64, id: &str) -> AgentRecord {
        AgentRecord {
            seq,
            id: id.parse().unwrap(),
            key: Some(format!("key {seq}")),
            status: Status::default(),
            wanted: WantedState::Run,
            nonce: "n".to_owned(),
            runs: 1,
            after: vec!["00000001".parse().unwrap()],
            program: "/bin/caliban".into(),
            has_secrets: true,
            resume_prompt: None,
            note: None,
            created_at: 1,
            updated_at: 2,
        }
    }

    fn here() -> HostId {
        HostId::of("here")
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    async fn read_all(registry: &mut Registry) -> Vec<(AgentRecord, String)> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let page = registry.page(after).await.unwrap();
            let Some((last, _)) = page.last() else { return all };
            after = last.seq;
            all.extend(page);
        }
    }

    #[test]
    fn a_page_ends_before_it_is_too_large_and_is_never_empty() {
        let (half, over) = (PAGE_BYTES / 2, PAGE_BYTES + 1);
        assert_eq!(last_of_page(&[]), None);
        assert_eq!(last_of_page(&[(3, over), (4, 1)]), Some(3));
        assert_eq!(last_of_page(&[(3, half), (5, half), (6, 0), (9, 1)]), Some(6));
        assert_eq!(last_of_page(&[(3, i64::MAX), (5, i64::MAX)]), Some(3));
    }

    #[test]
    fn pages_together_are_all_agents_and_none_is_larger_than_it_may_be() {
        let temp = tempfile::tempdir().unwrap();
        let url = StoreUrl::sqlite(temp.path().join("fleet.db"));
        run(async {
            let mut registry = Registry::open(&url, &here()).await.unwrap();
            // Short agents, more than fit into a page; then long ones, two per page; then one that fills a page alone.
            let long = usize::try_from(PAGE_BYTES).unwrap() * 2 / 5;
            let sizes =
                std::iter::repeat_n(10, 150).chain(std::iter::repeat_n(long, 3)).chain([long * 4, 10]);
            let inserts: Vec<RegistryChange> = (1_u32..)
                .zip(sizes)
                .map(|(number, size)| {
                    let id = AgentId::from_random(number.to_be_bytes());
                    let mut record = record(i64::from(number) * 2, &id.to_string());
                    // A pending resume prompt counts as well.
                    record.resume_prompt = Some("r".repeat(size / 2));
                    RegistryChange::Insert(Box::new(record), "s".repeat(size / 2))
                })
                .collect();
            registry.commit(&inserts).await.unwrap();
            let (mut lengths, mut found, mut after) = (Vec::new(), Vec::new(), 0);
            loop {
                let page = registry.page(after).await.unwrap();
                let Some((last, _)) = page.last() else { break };
                after = last.seq;
                lengths.push(page.len());
                found.extend(
                    page.into_iter().map(|(record, spec)| RegistryChange::Insert(Box::new(record), spec)),
                );
            }
            registry.forget_pages().await;
            assert_eq!((lengths, found), (vec![64, 64, 24, 1, 1, 1], inserts));
            registry.close().await;
        });
    }

    #[test]
    fn answers_are_kept_in_their_order_and_only_the_newest() {
        let temp = tempfile::tempdir().unwrap();
        let url = StoreUrl::sqlite(temp.path().join("fleet.db"));
        run(async {
            let mut registry = Registry::open(&url, &here()).await.unwrap();
            assert_eq!(registry.answers().await.unwrap(), []);
            let answer = |n: i64| RegistryChange::Answer(format!("r{n}"), format!("{n}"));
            registry.commit(&(0..ANSWERS + 3).map(answer).collect::<Vec<_>>()).await.unwrap();
            // A repeated request replaces its answer.
            registry.commit(&[RegistryChange::Answer("r7".to_owned(), "new".to_owned())]).await.unwrap();
            registry.close().await;
            let mut registry = Registry::open(&url, &here()).await.unwrap();
            let kept = registry.answers().await.unwrap();
            assert_eq!(kept.len(), usize::try_from(ANSWERS).unwrap());
            assert_eq!(kept.first().unwrap(), &("r3".to_owned(), "3".to_owned()));
            assert!(kept.contains(&("r7".to_owned(), "new".to_owned())));
            registry.close().await;
        });
    }

    #[test]
    fn schedules_are_read_back_as_they_were_written_last() {
        let temp = tempfile::tempdir().unwrap();
        let url = StoreUrl::sqlite(temp.path().join("fleet.db"));
        run(async {
            let mut registry = Registry::open(&url, &here()).await.unwrap();
            let mut nightly = ScheduleRecord {
                name: Slug::parse("nightly").unwrap(),
                every: "mon-fri 02:00".parse().unwrap(),
                overlap: Overlap::Skip,
                paused: false,
                next_at: 7,
                runs: 0,
                last: None,
                note: None,
                program: "/bin/caliban".into(),
                has_secrets: true,
                created_at: 3,
                spec: "{}".to_owned(),
            };
            registry.commit(&[RegistryChange::Schedule(Box::new(nightly.clone()))]).await.unwrap();
            nightly.last = Some(LastRun { agent: "aaaaaaaa".parse().unwrap(), due_at: 7, at: 9, missed: 2 });
            (nightly.paused, nightly.overlap, nightly.runs) = (true, Overlap::Allow, 1);
            nightly.note = Some("late".to_owned());
            let hourly = ScheduleRecord {
                name: Slug::parse("hourly").unwrap(),
                every: "1h".parse().unwrap(),
                ..nightly.clone()
            };
            let batch = [&nightly, &hourly].map(|record| RegistryChange::Schedule(Box::new(record.clone())));
            registry.commit(&batch).await.unwrap();
            registry.close().await;
            let mut registry = Registry::open(&url, &here()).await.unwrap();
            assert_eq!(registry.schedules().await.unwrap(), [hourly.clone(), nightly.clone()]);
            registry.commit(&[RegistryChange::Unschedule(hourly.name)]).await.unwrap();
            assert_eq!(registry.schedules().await.unwrap(), [nightly]);
            registry.close().await;
        });
    }

    #[test]
    fn what_is_committed_is_read_back_and_a_batch_is_all_or_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let url = StoreUrl::sqlite(temp.path().join("fleet.db"));
        run(async {
            let mut registry = Registry::open(&url, &here()).await.unwrap();
            assert_eq!(registry.prepared(), OpenReport::Created);
            let (first, second) = (record(1, "aaaaaaaa"), record(2, "bbbbbbbb"));
            let inserts = [
                RegistryChange::Insert(Box::new(second.clone()), "{\"b\":1}".to_owned()),
                RegistryChange::Insert(Box::new(first.clone()), "{\"a\":1}".to_owned()),
            ];
            registry.commit(&inserts).await.unwrap();
            // The same id again: the whole batch is refused.
            let mut changed = first.clone();
            changed.note = Some("changed".to_owned());
            let batch = [
                RegistryChange::Update(Box::new(changed.clone())),
                RegistryChange::Insert(Box::new(record(3, "bbbbbbbb")), String::new()),
            ];
            assert!(registry.commit(&batch).await.is_err());
            // The next commit works after a failure.
            registry.commit(&[RegistryChange::Update(Box::new(first.clone()))]).await.unwrap();
            registry.close().await;
            let mut registry = Registry::open(&url, &here()).await.unwrap();
            assert_eq!(registry.prepared(), OpenReport::Current);
            let all = read_all(&mut registry).await;
            assert_eq!(
                all,
                [(first.clone(), "{\"a\":1}".to_owned()), (second.clone(), "{\"b\":1}".to_owned())]
            );

            // A daemon of another machine takes an agent over.
            let there = HostId::of("there");
            let mut other = Registry::open(&url, &there).await.unwrap();
            other.commit(&[RegistryChange::Update(Box::new(second.clone()))]).await.unwrap();
            other.close().await;
            let hosts: Vec<String> = sqlx::query_scalar("SELECT host FROM agents ORDER BY seq")
                .fetch_all(registry.db.conn().await.unwrap())
                .await
                .unwrap();
            assert_eq!(hosts, [here().to_string(), there.to_string()]);

            changed.status = changed.status.apply(LifecycleEvent::Started).unwrap();
            changed.status = changed.status.apply(LifecycleEvent::Ended(Outcome::Finished)).unwrap();
            changed.wanted = WantedState::Kill;
            changed.after.clear();
            let batch =
                [RegistryChange::Update(Box::new(changed.clone())), RegistryChange::Delete(second.id)];
            registry.commit(&batch).await.unwrap();
            let all = read_all(&mut registry).await;
            assert_eq!(all, [(changed.clone(), "{\"a\":1}".to_owned())]);
            let status = &all[0].0.status;
            assert_eq!((status.state(), status.ending()), (State::Done, Some(&Ending::Finished)));
            assert_eq!(registry.spec(first.id).await.unwrap().as_deref(), Some("{\"a\":1}"));
            assert_eq!(registry.spec(second.id).await.unwrap(), None);
            registry.close().await;
        });
    }

    #[test]
    fn r25_a_registry_is_kept_in_a_directory_that_is_moved_and_given_up_when_its_file_is_another_one() {
        run(async {
            let temp = tempfile::tempdir().unwrap();
            let (before, after) = (temp.path().join("before"), temp.path().join("after"));
            let url = StoreUrl::sqlite(before.join("fleet.db"));
            let mut registry = Registry::open(&url, &here()).await.unwrap();
            let insert = |seq, id| RegistryChange::Insert(Box::new(record(seq, id)), "{}".to_owned());
            registry.commit(&[insert(1, "00000001")]).await.unwrap();
            std::fs::rename(&before, &after).unwrap();
            registry.commit(&[insert(2, "00000002")]).await.unwrap();
            assert_eq!(read_all(&mut registry).await.len(), 2);
            // Also a whole one is not taken for it.
            let file = after.join("fleet.db");
            std::fs::copy(&file, after.join("copy")).unwrap();
            std::fs::rename(after.join("copy"), &file).unwrap();
            let refused = registry.commit(&[insert(3, "00000003")]).await;
            assert!(matches!(refused, Err(StoreError::Replaced(_))), "{refused:?}");
            assert!(matches!(registry.page(0).await, Err(StoreError::Replaced(_))));
        });
    }
}
