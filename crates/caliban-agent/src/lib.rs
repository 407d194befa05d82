//! The agent: turn loop, hooks, permissions at work, transcript, compaction, sub-agents.
//!
//! Receives everything that it needs in a [`agent::Kit`]; reads no environment and prints nothing.

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make their trees by path"))]

pub mod agent;
pub mod answer_form;
pub mod asks;
pub mod background;
pub mod blueprint;
pub mod budget;
mod calls;
pub mod checkpoint;
pub mod choices;
mod compaction;
pub mod conversation;
pub mod event;
pub mod feed;
pub mod fence;
mod final_reply;
pub mod fork;
pub mod handle;
pub mod hooks;
pub mod last_writers;
mod limit_question;
pub mod mentions;
mod no_progress;
pub mod past_spending;
mod pictures;
pub mod prompt;
mod quiet_hours;
pub mod repo_state;
mod request;
mod secrets;
pub mod session_file;
pub mod spawner;
pub mod subagent;
pub mod telemetry;
pub mod transcript;
mod turn;
mod wait_for_jobs;

pub use agent::{
    Agent, AgentChange, AgentLimits, Attendance, EarlierAnswers, Fallback, Kit, RefusedCall, TurnCount,
    TurnReport,
};
pub use caliban_core::call_text::{Excerpt, excerpt, whole_call};
pub use calls::quote as describe;
