//! `caliban --version`: the price of being there at all.

use super::Bench;
use super::measure::Subject;

pub(super) const BENCH: Bench = Bench {
    name: "version",
    subject: |programs, home| {
        Subject::new(programs.join("caliban").to_string_lossy(), home).args(&["--version"])
    },
    at_most: Some(3.0),
};
