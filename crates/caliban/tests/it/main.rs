//! The `caliban` program from outside: one test binary, one module for each verb or topic.

#![expect(clippy::unwrap_used, reason = "test code: a failed step is a failed test")]

mod approvals;
mod attach;
mod background;
mod bad_input;
mod broker;
mod compaction;
mod config;
mod daemon_below;
mod demo;
mod doctor;
mod fleet;
mod fleet_all_repos;
mod fleet_codes;
mod fleet_disk;
mod fleet_json;
mod fleet_sleep;
mod heard_once;
mod held_worktrees;
mod hooks;
mod inherited;
mod isolation;
mod landing;
mod lost_runtime;
mod mcp;
mod merge;
mod merge_again;
mod merge_left;
mod models;
mod moved;
mod place;
mod rescues;
mod resume;
mod secrets;
mod sessions;
mod sub_agents;
mod told;
mod trust;
mod words;
mod work;
mod worker_again;
mod worker_base;
mod worker_disk;
mod worker_limits;
mod worker_log;
