//! The terminal UI: state, update and view, all pure, and a runner that connects them to a terminal and an agent.
//!
//! An ACP client: it talks to an agent in the same process over an in-memory stream, or to a fleet worker over its
//! socket, and cannot tell which. Links the protocol clients only; never the agent, the daemon or the store. Reads no
//! environment: the caller says what there is.

pub mod asks;
mod cells;
mod composer;
mod conversation;
pub mod events;
pub mod fleet;
mod highlight;
mod markdown;
mod runner;
mod sanitise;
mod state;
mod text;
pub mod theme;
mod view;

pub use runner::{
    FleetLeft, FleetView, LeaveReason, Machine, NoticeKind, ProgramLine, ScreenEnd, ScreenOptions,
    SessionChoice, run, run_fleet,
};
pub use state::{Look, OnLeave, ScreenFacts, ScreenState};
pub use view::draw;
