//! The promises of worktrees, each tried on real repositories in a hermetic directory.

mod attacks;
mod lab;
mod landing;
mod making;
mod places;
mod removing;
mod sweeping;
mod trouble;
