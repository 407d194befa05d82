//! The bare commit that is the reference for others: SQLite opens a database and commits one row, durably.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::Bed;
use super::measure::median;
use crate::run;

/// The bare commits of one benchmark. They are measured before and after the subject, so that a change of the disk's
/// load affects both.
pub(super) struct Commits {
    file: std::path::PathBuf,
    samples_us: Vec<f64>,
}

impl Commits {
    /// Measures the first half, in a database of its own.
    pub(super) fn before(bed: &Bed, name: &str) -> Result<Self> {
        let mut commits = Self { file: bed.scratch.join(format!("{name}-bare.db")), samples_us: Vec::new() };
        commits.take(bed)?;
        Ok(commits)
    }

    /// Measures the second half; returns the time of a commit without its process, in microseconds.
    pub(super) fn after(mut self, bed: &Bed) -> Result<f64> {
        self.take(bed)?;
        Ok(median(self.samples_us))
    }

    fn take(&mut self, bed: &Bed) -> Result<()> {
        let program = bed.example("commit")?;
        for _ in 0..bed.runs {
            let us = run::output(Command::new(&program).arg(&self.file).stdin(Stdio::null()))?;
            self.samples_us.push(us.trim().parse().with_context(|| format!("'{us}' is no number"))?);
        }
        Ok(())
    }
}
