//! All SQL of Caliban. Domain types go in and come out; nobody else knows a table.
//!
//! Owns the database: where it is ([`url`]), how it is opened and given its tables ([`open`]), what can go wrong with
//! it ([`error`]), and what its users tell each other beside it ([`signals`], [`doorbell`]). [`broker`] is the message
//! broker's part, [`fleet`] the registry of the fleet's agents, [`ledger`] what all agents of the machine spend,
//! [`search`] an index of what was said.
//!
//! PostgreSQL plugs in at three places: a variant of [`StoreUrl`], the connection in [`open`], an implementation of
//! [`signals::Signals`]. Rows that mean something on one machine only carry a [`HostId`] already.
//!
//! Refuses: printing, reading the environment, reading the clock for order. Every write takes
//! `now` from its caller and the order of things is the store's own sequence.

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
