//! The pure core of Caliban: types and rules, no effects.
//!
//! Knows no clock, file, environment, process or runtime; everything here is a function of its
//! arguments. `clippy.toml` in this crate holds that.

pub mod access;
pub mod message;
pub mod usage;
