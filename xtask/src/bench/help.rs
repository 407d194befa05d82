//! `--help`: builds and prints all arguments, loads nothing else.

use super::Bench;
use super::version::started;

pub(super) const BENCH: Bench =
    Bench { name: "help", what: "× is to a bare process start (true)", run: |bed| started(bed, "--help") };
