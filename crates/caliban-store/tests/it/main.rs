//! Tests of the store. The story runs against any URL.

#![expect(clippy::expect_used, reason = "a test that cannot go on says why and ends")]

mod faults;
mod first_use;
mod group;
mod ledger;
mod ledger_kill;
mod ledger_model;
mod ledger_storm;
mod ledger_sums;
mod members;
mod model_ledger;
mod rules;
mod speakers;
mod story;
mod timeline;
