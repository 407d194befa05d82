//! Tests of `cafleet` through its binary. Each has a home, a database and, where it needs one, a
//! tmux server of its own.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test says why it cannot go on; the fake agent draws"
)]

mod agents;
mod caliban_member;
mod clock;
mod crowd;
mod delivery;
mod fake_agent;
mod faults;
mod guide;
mod identity;
mod inputs;
mod members;
mod members_end;
mod messages;
mod numbers;
mod panes;
mod poll;
mod real_agents;
mod seed;
mod server;
mod sessions;
mod setup;
mod team_guide;
mod usage;
mod world;
