//! The broker's tables.
//!
//! `seq` is the order of sessions, agents and tasks. It is SQLite's row id, which only grows because no row of these
//! three tables is ever deleted and there is one writer at a time. A placement names a pane on one machine, its `host`.
//! `number` is a short name beside the id: 1, 2, 3 … for the agents of a session, and for its tasks. `pid_namespace` is
//! the namespace in which a session was made, if that does not show every process of its machine. `members` has the
//! command that started a member's program, `execs` the commands that members ran for their Directors, `notices` the
//! subjects already reported, and `deliverers` the process that types for a session. `owner`, `seal`, `hops` and
//! `owners` name the fleet agent that owns an identity, and limit that agent (a11, ADR 0040).

use crate::open::Schema;

/// The broker's schema.
pub const SCHEMA: Schema = Schema {
    // "cafl"
    application_id: 0x6361_666c,
    base: 3,
    tables: TABLES,
    steps: &[NUMBERS, MEMBERS],
};

const TABLES: &str = "
CREATE TABLE sessions (
  seq INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL UNIQUE,
  label TEXT,
  created_at TEXT NOT NULL,
  deleted_at TEXT,
  director_agent_id TEXT REFERENCES agents(agent_id) ON DELETE RESTRICT
);
CREATE TABLE agents (
  seq INTEGER PRIMARY KEY,
  agent_id TEXT NOT NULL UNIQUE,
  session_id TEXT NOT NULL REFERENCES sessions(session_id) ON DELETE RESTRICT,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('active', 'deregistered')),
  kind TEXT NOT NULL CHECK (kind IN ('user', 'builtin-administrator')),
  registered_at TEXT NOT NULL,
  deregistered_at TEXT,
  agent_card_json TEXT NOT NULL,
  owner TEXT,
  seal TEXT
);
CREATE INDEX agents_by_session ON agents (session_id, status);
CREATE INDEX agents_by_owner ON agents (owner) WHERE owner IS NOT NULL;
CREATE TABLE agent_placements (
  agent_id TEXT NOT NULL PRIMARY KEY REFERENCES agents(agent_id) ON DELETE CASCADE,
  director_agent_id TEXT REFERENCES agents(agent_id) ON DELETE RESTRICT,
  host TEXT NOT NULL,
  tmux_session TEXT NOT NULL,
  tmux_window_id TEXT NOT NULL,
  tmux_pane_id TEXT,
  coding_agent TEXT NOT NULL,
  created_at TEXT NOT NULL,
  tmux_socket TEXT,
  tmux_server_pid BIGINT,
  tmux_pane_pid BIGINT,
  tmux_pane_started TEXT
);
CREATE INDEX placements_by_director ON agent_placements (director_agent_id);
CREATE TABLE tasks (
  seq INTEGER PRIMARY KEY,
  task_id TEXT NOT NULL UNIQUE,
  context_id TEXT NOT NULL REFERENCES agents(agent_id) ON DELETE RESTRICT,
  from_agent_id TEXT NOT NULL,
  to_agent_id TEXT NOT NULL,
  type TEXT NOT NULL CHECK (type IN ('unicast', 'broadcast_summary')),
  created_at TEXT NOT NULL,
  status_state TEXT NOT NULL CHECK (status_state IN ('input_required', 'completed', 'canceled')),
  status_timestamp TEXT NOT NULL,
  origin_task_id TEXT,
  text TEXT NOT NULL,
  delivery_state TEXT NOT NULL CHECK (delivery_state IN ('stored', 'held', 'typed', 'confirmed', 'failed')),
  delivery_note TEXT,
  hops BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX tasks_inbox ON tasks (context_id, seq);
CREATE INDEX tasks_open ON tasks (context_id, seq) WHERE status_state = 'input_required';
CREATE TABLE owners (
  owner TEXT NOT NULL PRIMARY KEY,
  used_until BIGINT NOT NULL,
  answering BIGINT
);
";

/// Version 4: numbers, and the namespace of a session. A row that an older program writes afterwards has no number.
const NUMBERS: &str = "
ALTER TABLE sessions ADD COLUMN pid_namespace TEXT;
ALTER TABLE sessions ADD COLUMN last_agent BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN last_task BIGINT NOT NULL DEFAULT 0;
ALTER TABLE agents ADD COLUMN number BIGINT;
ALTER TABLE tasks ADD COLUMN number BIGINT;
UPDATE agents SET number = given.number FROM
  (SELECT seq, ROW_NUMBER() OVER (PARTITION BY session_id ORDER BY seq) AS number FROM agents) AS given
  WHERE given.seq = agents.seq;
UPDATE tasks SET number = given.number FROM
  (SELECT t.seq, ROW_NUMBER() OVER (PARTITION BY a.session_id ORDER BY t.seq) AS number
   FROM tasks t JOIN agents a ON a.agent_id = t.context_id) AS given
  WHERE given.seq = tasks.seq;
UPDATE sessions SET
  last_agent = (SELECT COUNT(*) FROM agents a WHERE a.session_id = sessions.session_id),
  last_task = (SELECT COUNT(*) FROM tasks t JOIN agents a ON a.agent_id = t.context_id
    WHERE a.session_id = sessions.session_id);
CREATE UNIQUE INDEX agents_by_number ON agents (session_id, number);
CREATE INDEX tasks_by_number ON tasks (number);
";

/// Version 5: members, their commands, notices, and deliverers.
const MEMBERS: &str = "
CREATE TABLE members (
  agent_id TEXT NOT NULL PRIMARY KEY REFERENCES agents(agent_id) ON DELETE RESTRICT,
  launch TEXT NOT NULL,
  maker TEXT NOT NULL,
  former_pane TEXT
);
CREATE TABLE execs (
  seq INTEGER PRIMARY KEY,
  exec_id TEXT NOT NULL UNIQUE,
  session_id TEXT NOT NULL REFERENCES sessions(session_id) ON DELETE RESTRICT,
  member_agent_id TEXT NOT NULL REFERENCES agents(agent_id) ON DELETE RESTRICT,
  director_agent_id TEXT NOT NULL REFERENCES agents(agent_id) ON DELETE RESTRICT,
  command TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('queued', 'typed', 'running', 'done', 'lost')),
  created_at TEXT NOT NULL,
  changed_at TEXT NOT NULL,
  runner TEXT,
  exit_code BIGINT,
  output TEXT,
  note TEXT
);
CREATE INDEX execs_open ON execs (session_id, seq) WHERE state IN ('queued', 'typed', 'running');
CREATE TABLE notices (
  session_id TEXT NOT NULL REFERENCES sessions(session_id) ON DELETE RESTRICT,
  subject TEXT NOT NULL,
  created_at TEXT NOT NULL,
  PRIMARY KEY (session_id, subject)
);
CREATE TABLE deliverers (
  session_id TEXT NOT NULL PRIMARY KEY REFERENCES sessions(session_id) ON DELETE RESTRICT,
  process TEXT NOT NULL,
  since TEXT NOT NULL
);
";
