//! The registry's tables. `host` is the machine whose daemon wrote the row: the agent's process and worktree are there.

use crate::open::Schema;

/// The registry's schema.
pub const SCHEMA: Schema = Schema {
    // "calf"
    application_id: 0x6361_6c66,
    base: 2,
    tables: TABLES,
    steps: &[HISTORY, SCHEDULES],
};

/// Version 3: the history of the agents' statuses.
const HISTORY: &str = "
CREATE TABLE history (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  agent TEXT NOT NULL,
  at BIGINT NOT NULL,
  status TEXT NOT NULL
);
CREATE INDEX history_by_agent ON history (agent, seq);
CREATE INDEX history_by_time ON history (at);
";

/// Answers to requests. The table is made with the first answer: a registry without it has the same version.
pub(super) const ANSWERS_TABLE: &str = "CREATE TABLE IF NOT EXISTS answers (
  seq INTEGER PRIMARY KEY,
  request TEXT NOT NULL UNIQUE,
  answer TEXT NOT NULL
)";

const TABLES: &str = "
CREATE TABLE agents (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  host TEXT NOT NULL,
  request_key TEXT UNIQUE,
  state TEXT NOT NULL CHECK (state IN ('spawning', 'running', 'idle', 'killed', 'done', 'failed', 'crashed')),
  waiting_for TEXT,
  ending TEXT,
  wanted TEXT NOT NULL CHECK (wanted IN ('run', 'kill')),
  nonce TEXT NOT NULL,
  runs BIGINT NOT NULL,
  after_ids TEXT NOT NULL,
  program TEXT NOT NULL,
  has_secrets BIGINT NOT NULL,
  resume_prompt TEXT,
  note TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  spec TEXT NOT NULL
);
";

/// Version 4: schedules, which start an agent each time they are due. Times are milliseconds since 1970.
const SCHEDULES: &str = "
CREATE TABLE schedules (
  name TEXT PRIMARY KEY,
  host TEXT NOT NULL,
  every TEXT NOT NULL,
  overlap BIGINT NOT NULL,
  paused BIGINT NOT NULL,
  next_at BIGINT NOT NULL,
  runs BIGINT NOT NULL,
  last TEXT,
  note TEXT,
  program TEXT NOT NULL,
  has_secrets BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  spec TEXT NOT NULL
);
";
