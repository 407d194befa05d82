//! Looking back: spending, the timeline of a fleet, full text search, and figures for Prometheus. All of it is derived
//! from transcripts, and can be rebuilt from them.

mod activity;
mod metrics;
mod search;
mod spend;
mod timeline;

pub(crate) use activity::ActivityFolds;
pub(crate) use metrics::metrics;
pub(crate) use search::{Library, search};
pub(crate) use spend::spend;
pub(crate) use timeline::timeline;
