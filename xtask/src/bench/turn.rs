//! One turn of `caliban -p hello` with the scripted model: all that is ours, without a network.

use super::Bench;
use super::measure::Subject;

pub(super) const BENCH: Bench = Bench {
    name: "turn",
    subject: |programs, home| {
        Subject::new(programs.join("caliban").to_string_lossy(), home).args(&[
            "--provider",
            "scripted",
            "-p",
            "hello",
        ])
    },
    at_most: None,
};
