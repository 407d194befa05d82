//! The terminal UI without a terminal: what happens goes into the state, and the screen is looked at.
//!
//! Tests named `t01` to `t30` stand for complaints about other terminal UIs, by their number in the project's list.

mod approvals;
mod commands;
mod conversation;
mod fleet;
mod leaving;
mod looks;
mod mouse;
mod typing;
mod world;
