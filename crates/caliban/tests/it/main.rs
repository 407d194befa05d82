//! The `caliban` program from outside: one test binary, one module for each verb or topic.

mod config;
mod doctor;
mod trust;
mod words;
