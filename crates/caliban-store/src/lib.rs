//! All SQL of Caliban. Domain types go in and come out; no other crate knows a table.
//!
//! Owns the database: its location ([`url`]), opening it and making its tables ([`open`]), its failures ([`error`]),
//! and the signals between its users ([`signals`], [`doorbell`]). [`broker`] is the message broker's part, [`fleet`]
//! the registry of the fleet's agents, [`ledger`] the spending of all agents of the machine, [`search`] a full text
//! index of transcripts.
//!
//! PostgreSQL plugs in at three places: a variant of [`StoreUrl`], the connection in [`open`], an implementation of
//! [`signals::Signals`]. Rows that are valid on one machine only carry a [`HostId`] already.
//!
//! Refuses: printing, reading the environment, reading the clock for order. Every write takes `now` from its caller,
//! and the order is the store's own sequence.

mod ask;
pub mod broker;
pub mod doorbell;
pub mod error;
pub mod fleet;
pub mod host;
pub mod ledger;
pub mod open;
pub mod search;
pub mod signals;
pub mod timestamp;
pub mod url;

pub use error::StoreError;
pub use host::HostId;
pub use timestamp::Stamp;
pub use url::StoreUrl;
