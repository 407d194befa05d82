//! Looking back: what was spent, a fleet's evening, full text search, and figures for Prometheus. All of it is a fold over
//! transcripts, and can be made anew from them.

mod book;
mod evening;
mod metrics;
mod search;
mod spend;

pub(crate) use book::Book;
pub(crate) use evening::timeline;
pub(crate) use metrics::metrics;
pub(crate) use search::{Library, search};
pub(crate) use spend::spend;
