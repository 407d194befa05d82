//! The `caliban` program from outside: one test binary, one module for each verb or topic.

#![expect(clippy::unwrap_used, reason = "test code: a failed step is a failed test")]

mod config;
mod doctor;
mod models;
mod place;
mod secrets;
mod trust;
mod words;
mod work;
