//! The agent's crate from outside: what the whole program cannot show, byte for byte.

#![expect(clippy::disallowed_methods, reason = "tests make their trees by path")]
#![expect(clippy::unwrap_used, reason = "test code: a failed step is a failed test")]

mod compaction;
mod handover;
mod kept;
mod order;
mod pairs;
mod resumed;
mod room;
mod steering;
mod stopped;
mod time;
mod transcript;
mod turns;
mod world;
