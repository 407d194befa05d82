//! `caliban --help`: all arguments built and shown, nothing else loaded.

use super::Bench;
use super::measure::Subject;

pub(super) const BENCH: Bench = Bench {
    name: "help",
    subject: |programs, home| {
        Subject::new(programs.join("caliban").to_string_lossy(), home).args(&["--help"])
    },
    at_most: Some(3.0),
};
