//! The bare commit that others are compared with: SQLite opens a database and commits one row, durably.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::Bed;
use super::measure::median;
use crate::run;

/// Bare commits of one benchmark. They are taken before and after what is compared with them, so that a change of
/// the disk's load meets both.
pub(super) struct Commits {
    file: std::path::PathBuf,
    samples_us: Vec<f64>,
}

impl Commits {
    /// Takes the first half, in a database of its own.
    pub(super) fn before(bed: &Bed, name: &str) -> Result<Self> {
        let mut commits = Self { file: bed.scratch.join(format!("{name}-bare.db")), samples_us: Vec::new() };
        commits.take(bed)?;
        Ok(commits)
    }

    /// Takes the second half; what a commit takes without its process, in microseconds.
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
