//! The helper for the tests: a program that has the hidden mode and nothing else.

use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    caliban_fence::fence_main(arguments.get(2..).unwrap_or_default())
}
