//! The tools that an agent works with.

use std::{future::Future, pin::Pin};

use caliban_core::{
    access::Access,
    message::{ResultPart, ToolSpec},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A boxed future, as trait objects need it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A tool the model can call.
pub trait Tool: Send + Sync {
    /// What the model is told.
    fn spec(&self) -> &ToolSpec;

    /// What this call would touch, for the permission rules. An input that cannot be understood is an
    /// error here already, worded for the model.
    fn access(&self, input: &Value) -> Result<Vec<Access>, String>;

    /// Carries the call out. Never panics, never fails: what goes wrong is an output with `is_error`.
    /// Returns within 100 ms of `call.cancel`.
    fn call<'a>(&'a self, input: Value, call: Call<'a>) -> BoxFuture<'a, ToolOutput>;
}

/// What goes with one call.
pub struct Call<'a> {
    /// The call's id.
    pub id: &'a str,
    /// Ends the call and everything that it started.
    pub cancel: &'a CancellationToken,
    /// Takes live output (a command's, a sub-agent's) for people who watch; the model does not see it.
    pub progress: &'a (dyn Fn(&str) + Send + Sync),
}

/// What came of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// What the model gets, already within the cap.
    pub content: Vec<ResultPart>,
    /// Whether it failed.
    pub is_error: bool,
    /// One line for people: `3 matches in 2 files`, `exit 1 after 2.3 s`.
    pub summary: String,
    /// A command's exit code.
    pub exit_code: Option<i32>,
    /// Where the whole output is, when `content` is a part of it.
    pub whole: Option<std::path::PathBuf>,
}
