//! The promises of worktrees, each tried on real repositories in a hermetic directory.

#![expect(clippy::disallowed_methods, reason = "tests make their trees by path")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod attacks;
mod committing;
mod hooks;
mod lab;
mod landing;
mod making;
mod merging;
mod places;
mod planted;
mod private_git;
mod records;
mod removing;
mod sweeping;
mod trouble;
