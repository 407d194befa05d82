//! placeholder, replaced in the first commits
