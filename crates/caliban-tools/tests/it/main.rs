//! The tools as the loop uses them: access first, then the call.

#![expect(clippy::disallowed_methods, reason = "tests make their trees by path")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bash;
mod bench;
mod clock;
mod edit;
mod exhaustion;
mod fetch;
mod memory;
mod patch;
mod read;
mod search;
mod specs;
mod supervised;
mod todo;
mod tree;
mod write;
