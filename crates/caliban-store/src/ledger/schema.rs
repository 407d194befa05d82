//! The ledger's tables.
//!
//! `accounts` are agents: fleet agents, sessions, their sub-agents. `meters` are the pools that a request counts in:
//! one for the agent itself, one for each tree that it belongs to, one for its repo's day, one for the day, one for
//! everything. `reservations` are requests in flight, each with its process; an id is never reused. `history` is
//! settled spending by day, agent and model. `limits` are those that a person has set in place of the settings, for
//! each day; `raised` are those that replace another limit for one day, after a yes to a question. `questions` are
//! limits about which an agent is asking a person. `lanes` and `tickets` belong to the governor: how each provider's
//! key may be used now, and which agents wait for it.

use crate::open::Schema;

/// The ledger's schema.
pub const SCHEMA: Schema = Schema {
    // "call"
    application_id: 0x6361_6c6c,
    base: 1,
    tables: TABLES,
    steps: &[QUESTIONS, LEASES, FRESH],
};

/// Version 2: questions about limits, and raised limits of agents and days.
const QUESTIONS: &str = "
ALTER TABLE accounts ADD COLUMN own_asked TEXT NOT NULL DEFAULT '';
CREATE TABLE questions (
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  account TEXT NOT NULL,
  boot TEXT NOT NULL,
  pid BIGINT NOT NULL,
  started BIGINT NOT NULL,
  denied_ms BIGINT,
  PRIMARY KEY (kind, subject)
) WITHOUT ROWID;
CREATE TABLE raised (
  kind TEXT NOT NULL CHECK (kind IN ('repo_day', 'day')),
  subject TEXT NOT NULL,
  instead_of TEXT NOT NULL,
  limits TEXT NOT NULL,
  PRIMARY KEY (kind, subject, instead_of)
) WITHOUT ROWID;
";

/// Version 3: a ticket counts for a while only. Lanes of older builds are in another time and have other names.
const LEASES: &str = "
ALTER TABLE tickets ADD COLUMN lease_ms BIGINT NOT NULL DEFAULT 0;
";

/// Version 4: limits of new tokens. Of a request in flight all counts as new.
const FRESH: &str = "
ALTER TABLE meters ADD COLUMN held_fresh BIGINT NOT NULL DEFAULT 0;
UPDATE meters SET held_fresh = held_tokens;
";

const TABLES: &str = "
CREATE TABLE accounts (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  parent BIGINT REFERENCES accounts(seq) ON DELETE RESTRICT,
  repo TEXT NOT NULL,
  label TEXT,
  own_limits TEXT NOT NULL,
  tree_limits TEXT NOT NULL,
  asked_limits TEXT NOT NULL,
  created_at TEXT NOT NULL
);
CREATE INDEX accounts_by_parent ON accounts (parent);
CREATE TABLE meters (
  seq INTEGER PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('agent', 'tree', 'repo_day', 'day', 'all')),
  subject TEXT NOT NULL,
  input BIGINT NOT NULL DEFAULT 0,
  output BIGINT NOT NULL DEFAULT 0,
  cache_read BIGINT NOT NULL DEFAULT 0,
  cache_write BIGINT NOT NULL DEFAULT 0,
  usd BIGINT NOT NULL DEFAULT 0,
  turns BIGINT NOT NULL DEFAULT 0,
  wall_ms BIGINT NOT NULL DEFAULT 0,
  unpriced BIGINT NOT NULL DEFAULT 0,
  held_tokens BIGINT NOT NULL DEFAULT 0,
  held_usd BIGINT NOT NULL DEFAULT 0,
  held_turns BIGINT NOT NULL DEFAULT 0,
  noticed TEXT,
  UNIQUE (kind, subject)
);
CREATE TABLE reservations (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  account BIGINT NOT NULL REFERENCES accounts(seq) ON DELETE RESTRICT,
  meters TEXT NOT NULL,
  day TEXT NOT NULL,
  model TEXT NOT NULL,
  input BIGINT NOT NULL,
  output BIGINT NOT NULL,
  cache_read BIGINT NOT NULL,
  cache_write BIGINT NOT NULL,
  usd BIGINT,
  turns BIGINT NOT NULL,
  boot TEXT NOT NULL,
  pid BIGINT NOT NULL,
  started BIGINT NOT NULL,
  made_at TEXT NOT NULL
);
CREATE TABLE history (
  day TEXT NOT NULL,
  account BIGINT NOT NULL REFERENCES accounts(seq) ON DELETE RESTRICT,
  model TEXT NOT NULL,
  requests BIGINT NOT NULL,
  input BIGINT NOT NULL,
  output BIGINT NOT NULL,
  cache_read BIGINT NOT NULL,
  cache_write BIGINT NOT NULL,
  usd BIGINT NOT NULL,
  turns BIGINT NOT NULL,
  wall_ms BIGINT NOT NULL,
  unpriced BIGINT NOT NULL,
  PRIMARY KEY (day, account, model)
) WITHOUT ROWID;
CREATE TABLE limits (
  kind TEXT NOT NULL CHECK (kind IN ('repo_day', 'day')),
  subject TEXT NOT NULL,
  limits TEXT NOT NULL,
  PRIMARY KEY (kind, subject)
) WITHOUT ROWID;
CREATE TABLE lanes (
  lane TEXT NOT NULL PRIMARY KEY,
  until_ms BIGINT NOT NULL,
  next_ms BIGINT NOT NULL,
  interval_ms BIGINT NOT NULL,
  strikes BIGINT NOT NULL,
  reason TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE tickets (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  lane TEXT NOT NULL,
  priority BIGINT NOT NULL,
  boot TEXT NOT NULL,
  pid BIGINT NOT NULL,
  started BIGINT NOT NULL
);
CREATE INDEX tickets_by_lane ON tickets (lane, priority DESC, seq);
";
