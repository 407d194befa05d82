//! The pure core of Caliban: types and rules, no effects.
//!
//! Knows no clock, file, environment, process or runtime; everything here is a function of its
//! arguments. `clippy.toml` in this crate holds that.

pub mod access;
pub mod address;
pub mod ask;
pub mod background;
pub mod budget;
pub mod calendar;
pub mod call_text;
pub mod cap;
pub mod defaults;
pub mod definition;
pub mod event;
pub mod fence;
pub mod hex;
pub mod hook;
pub mod ids;
pub mod inert;
pub mod instant;
pub mod kept_rules;
pub mod lifecycle;
pub mod message;
pub mod mode;
pub mod model_alias;
pub mod models;
pub mod names;
pub mod price;
pub mod priority;
pub mod quiet_hours;
pub mod recurrence;
pub mod redact;
pub mod review;
pub mod setup;
pub mod size;
pub mod spec;
pub mod sse;
pub mod status_word;
mod text_form;
pub mod turn;
pub mod usage;
pub mod wait;

/// A boxed future, as trait objects need it.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The fleet's names for what the broker also has: write `fleet::AgentId` for a supervised run.
pub mod fleet {
    pub use crate::ids::AgentId;
}
