//! Looking back: what was spent, a fleet's evening, full text search, and figures for Prometheus. All of it is a fold over
//! transcripts, and can be made anew from them.

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
