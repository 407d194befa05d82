//! The rules as the agent meets them.

mod approvals;
mod commands;
mod differential;
mod junk;
mod modes;
mod narrowing;
mod paths;
mod place;
mod rules;
