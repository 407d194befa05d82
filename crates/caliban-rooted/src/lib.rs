//! Files beneath directories that are held open.
//!
//! An agent can rename, link and swap everything in the trees that it can write. So a name there decides nothing: a [`Root`] is
//! a directory that is held open and known by its [`Identity`]; a [`Below`] is a name that means something beneath a root only.
//! It is no path, so no function of `std::fs` takes it. Every look-up stays beneath the root and follows no link.
//!
//! [`Roots`] are the roots of one agent: each is found by its path once, before the agent's first command.

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make their trees by path"))]

mod below;
mod byte_text;
mod identity;
pub mod real_path;
mod root;
mod roots;
pub mod tree;

pub use below::Below;
pub use byte_text::ByteText;
pub use identity::Identity;
pub use root::{FoundEntry, Root, is_gone, open_exactly, open_plain};
pub use roots::{JudgedPlace, Roots, RootsError, RootsRecord};
pub use rustix::fs::FileType;
