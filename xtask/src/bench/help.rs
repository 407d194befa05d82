//! `--help`: all arguments built and shown, nothing else loaded.

use super::Bench;
use super::version::started;

pub(super) const BENCH: Bench =
    Bench { name: "help", what: "× is to a bare process start (true)", run: |bed| started(bed, "--help") };
