//! Commands that a member runs for its Director.
//!
//! Owns their states as guarded writes: `queued` (to be typed), `typed`, `running` (its runner has begun), and one of
//! two ends, `done` or `lost`. A command begins at most once, and not after it was declared lost.

use std::fmt;

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::ids::{AgentId, ExecId, SessionId};
use super::row::read;
use super::{Broker, BrokerError};
use crate::Stamp;
use crate::ask::{Ask, ReadAs};

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewExec {
    /// Its id.
    pub id: ExecId,
    /// The session.
    pub session: SessionId,
    /// The member that runs it.
    pub member: AgentId,
    /// The Director that requested it.
    pub director: AgentId,
    /// What to run.
    pub command: String,
}

/// How far a command got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecState {
    /// To be typed when the pane is free.
    Queued,
    /// Typed; not begun.
    Typed,
    /// Begun.
    Running,
    /// Ended, with an exit code.
    Done,
    /// It never began, or its end is not known.
    Lost,
}

impl ExecState {
    /// The name in the database and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Typed => "typed",
            Self::Running => "running",
            Self::Done => "done",
            Self::Lost => "lost",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Queued, Self::Typed, Self::Running, Self::Done, Self::Lost]
            .into_iter()
            .find(|state| state.as_str() == word)
    }

    /// Whether it can still change.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Queued | Self::Typed | Self::Running)
    }
}

impl fmt::Display for ExecState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A command and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// Its id.
    pub id: ExecId,
    /// The session.
    pub session: SessionId,
    /// The member that runs it.
    pub member: AgentId,
    /// The Director that requested it.
    pub director: AgentId,
    /// What to run.
    pub command: String,
    /// How far it got.
    pub state: ExecState,
    /// When it was requested.
    pub created_at: Stamp,
    /// When its state last changed.
    pub changed_at: Stamp,
    /// The process that runs it.
    pub runner: Option<String>,
    /// Its exit code.
    pub exit_code: Option<i64>,
    /// The last part of its output.
    pub output: Option<String>,
    /// Why it waits or is lost.
    pub note: Option<String>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEnd {
    /// With this code and output.
    Done {
        /// Its exit code.
        exit_code: i64,
        /// The last part of its output.
        output: String,
    },
    /// Unknown, for this reason.
    Lost(String),
}

const COLUMNS: &str = "exec_id, session_id, member_agent_id, director_agent_id, command, state, created_at, changed_at, \
                       runner, exit_code, output, note";

fn exec(row: &SqliteRow) -> Result<Exec, sqlx::Error> {
    let stamp = |text: &str| Stamp::parse(text).ok();
    Ok(Exec {
        id: read(row, 0, ExecId::parse)?,
        session: read(row, 1, SessionId::parse)?,
        member: read(row, 2, AgentId::parse)?,
        director: read(row, 3, AgentId::parse)?,
        command: row.try_get(4)?,
        state: read(row, 5, ExecState::parse)?,
        created_at: read(row, 6, stamp)?,
        changed_at: read(row, 7, stamp)?,
        runner: row.try_get(8)?,
        exit_code: row.try_get(9)?,
        output: row.try_get(10)?,
        note: row.try_get(11)?,
    })
}

impl Broker {
    /// Stores a command to be typed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn queue_exec(&mut self, new: &NewExec, now: Stamp) -> Result<(), BrokerError> {
        self.db.run(sqlx::query(
                "INSERT INTO execs (exec_id, session_id, member_agent_id, director_agent_id, command, state, \
                 created_at, changed_at) VALUES ($1, $2, $3, $4, $5, 'queued', $6, $6)",
            )
            .bind(new.id.to_string())
            .bind(new.session.to_string())
            .bind(new.member.to_string())
            .bind(new.director.to_string())
            .bind(&new.command)
            .bind(now.to_string())).await?;
        Ok(())
    }

    /// One command.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn exec(&mut self, id: ExecId) -> Result<Option<Exec>, BrokerError> {
        Ok(sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM execs WHERE exec_id = $1")))
            .bind(id.to_string())
            .read_as(exec)
            .maybe(&mut self.db)
            .await?)
    }

    /// The commands of a Director whose id has this prefix.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn execs_like(&mut self, director: AgentId, begins: &str) -> Result<Vec<Exec>, BrokerError> {
        Ok(sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM execs WHERE director_agent_id = $1 AND substr(exec_id, 1, length($2)) = $2 \
             ORDER BY seq LIMIT 5"
        )))
        .bind(director.to_string())
        .bind(begins.to_lowercase()).read_as(exec).all(&mut self.db).await?)
    }

    /// The commands of a session that have not ended, oldest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn open_execs(&mut self, session: SessionId) -> Result<Vec<Exec>, BrokerError> {
        Ok(sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM execs WHERE session_id = $1 AND state IN ('queued', 'typed', 'running') \
             ORDER BY seq"
        )))
        .bind(session.to_string())
        .read_as(exec)
        .all(&mut self.db)
        .await?)
    }

    /// Claims a command for typing; `false` if it is no longer queued.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn claim_exec(&mut self, id: ExecId, now: Stamp) -> Result<bool, BrokerError> {
        self.change(
            "UPDATE execs SET state = 'typed', changed_at = $2 WHERE exec_id = $1 AND state = 'queued'",
            id,
            now,
            &[],
        )
        .await
    }

    /// Puts a command that was claimed but could not be typed back into the queue.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn unclaim_exec(&mut self, id: ExecId, why: &str, now: Stamp) -> Result<bool, BrokerError> {
        self.change(
            "UPDATE execs SET state = 'queued', changed_at = $2, note = $3 WHERE exec_id = $1 AND state = 'typed'",
            id,
            now,
            &[why],
        )
        .await
    }

    /// Records that the command's runner begins; `false` if it has begun before, or was declared lost.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn begin_exec(&mut self, id: ExecId, runner: &str, now: Stamp) -> Result<bool, BrokerError> {
        self.change(
            "UPDATE execs SET state = 'running', changed_at = $2, runner = $3, note = NULL \
             WHERE exec_id = $1 AND state = 'typed'",
            id,
            now,
            &[runner],
        )
        .await
    }

    /// Records the end of a command; `false` when it had ended before.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn end_exec(&mut self, id: ExecId, end: &ExecEnd, now: Stamp) -> Result<bool, BrokerError> {
        let ended = match end {
            ExecEnd::Done { exit_code, output } => {
                let code = exit_code.to_string();
                self.change(
                    "UPDATE execs SET state = 'done', changed_at = $2, exit_code = CAST($3 AS BIGINT), output = $4 \
                     WHERE exec_id = $1 AND state = 'running'",
                    id,
                    now,
                    &[&code, output],
                )
                .await?
            }
            ExecEnd::Lost(why) => {
                self.change(
                    "UPDATE execs SET state = 'lost', changed_at = $2, note = $3 \
                     WHERE exec_id = $1 AND state IN ('queued', 'typed', 'running')",
                    id,
                    now,
                    &[why],
                )
                .await?
            }
        };
        // Processes that wait for the end listen for the command's id.
        self.signals.ring(&id.to_string()).await;
        Ok(ended)
    }

    async fn change(
        &mut self,
        sql: &'static str,
        id: ExecId,
        now: Stamp,
        more: &[&str],
    ) -> Result<bool, BrokerError> {
        let mut query = sqlx::query(sql).bind(id.to_string()).bind(now.to_string());
        for value in more {
            query = query.bind((*value).to_owned());
        }
        Ok(self.db.run(query).await? == 1)
    }
}
