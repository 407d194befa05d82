//! The keeper of commands, for the tests.

fn main() {}
