//! All SQL of Caliban. Domain types go in and come out; nobody else knows a table.
//!
//! Owns the database file: where it is ([`url`]), how it is opened, locked and brought to the
//! current schema ([`open`]), what can go wrong with it ([`error`]), and how a waiting reader is
//! woken ([`doorbell`]). [`broker`] is the message broker's part; the fleet's registry will live
//! beside it on the same foundation.
//!
//! Refuses: printing, reading the environment, reading the clock for order. Every write takes
//! `now` from its caller and the order of things is the store's own sequence.

pub mod broker;
pub mod doorbell;
pub mod error;
pub mod fleet;
pub mod open;
pub mod stamp;
pub mod url;

pub use error::StoreError;
pub use stamp::Stamp;
pub use url::StoreUrl;
