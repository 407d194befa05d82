//! placeholder, replaced in the first commits
fn main() {}
