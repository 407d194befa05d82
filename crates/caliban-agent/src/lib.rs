//! The agent: turn loop, hooks, permissions at work, transcript, compaction, sub-agents.
//!
//! Receives everything that it needs in a [`agent::Kit`]; reads no environment and prints nothing.

pub mod agent;
pub mod answer;
pub mod asks;
pub mod background;
pub mod blueprint;
pub mod budget;
mod calls;
pub mod checkpoint;
mod compaction;
pub mod conversation;
pub mod definitions;
mod ending;
pub mod event;
pub mod feed;
pub mod fence;
pub mod fork;
mod guard;
pub mod handle;
pub mod hooks;
mod jobs;
mod limit_question;
pub mod mentions;
mod pictures;
pub mod prompt;
mod quiet;
mod request;
mod secrets;
pub mod session_file;
pub mod spawner;
pub mod spent;
pub mod subagent;
pub mod telemetry;
pub mod transcript;
mod turn;
pub mod writers;

pub use agent::{
    Agent, AgentChange, AgentLimits, Attendance, EarlierAnswers, Fallback, Kit, RefusedCall, TurnCount,
    TurnReport,
};
pub use caliban_core::call_text::{Excerpt, excerpt, whole_call};
pub use calls::quote as describe;
