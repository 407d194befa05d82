//! The tools as the loop uses them: access first, then the call.

mod bench;
mod edit;
mod read;
mod search;
mod specs;
mod todo;
mod write;
