//! The terminal UI without a terminal: what happens goes into the state, and the screen is looked at.
//!
//! Tests named `t01` to `t30` are the complaints about other terminal UIs that are listed in the project's `TUI.md`.

mod approvals;
mod conversation;
mod fleet;
mod looks;
mod typing;
mod world;
