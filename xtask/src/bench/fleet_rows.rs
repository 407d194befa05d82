//! The rows of the fleet's tables: a figure, its ratio to a reference of the same run, the promised limit and whether
//! it is kept.

use anyhow::Result;

use super::fleet_memory::{HeldMemory, held_by_bare};
use super::table::{Table, ms, times};

/// A time, its reference and its limit.
pub(super) struct Time<'a> {
    pub(super) label: &'a str,
    pub(super) us: f64,
    /// The reference of the ratio, as text and in microseconds.
    pub(super) to: &'a str,
    pub(super) base_us: f64,
    pub(super) at_most_ms: Option<f64>,
}

/// Adds a time.
pub(super) fn time(table: &mut Table, row: &Time<'_>) {
    let verdict = row.at_most_ms.map_or([String::new(), String::new()], |at_most| {
        [format!("≤ {at_most} ms"), verdict(row.us / 1_000.0, at_most)]
    });
    let cells = [ms(row.us), times(row.us / row.base_us.max(1.0)), row.to.to_owned()];
    table.row(row.label, cells.into_iter().chain(verdict));
}

/// Memory relative to that of a process that does nothing.
pub(super) struct Memory {
    nothing: HeldMemory,
}

impl Memory {
    /// Measures the process that does nothing.
    pub(super) fn base(table: &mut Table) -> Result<Self> {
        let nothing = held_by_bare()?;
        table.row("sleep, unshared", [mb(nothing.private_kb), String::new()]);
        Ok(Self { nothing })
    }

    /// Adds a row of memory.
    pub(super) fn row(&self, table: &mut Table, label: &str, kb: f64, at_most_mb: Option<f64>) {
        let verdict = at_most_mb.map_or([String::new(), String::new()], |at_most| {
            [format!("≤ {at_most} MB"), verdict(kb / 1_024.0, at_most)]
        });
        let cells = [mb(kb), times(kb / self.nothing.private_kb.max(1.0)), "sleep".to_owned()];
        table.row(label, cells.into_iter().chain(verdict));
    }
}

/// Adds a count with an upper limit.
pub(super) fn count(table: &mut Table, label: &str, number: usize, at_most: usize) {
    let verdict = verdict(number as f64, at_most as f64);
    table.row(label, [number.to_string(), String::new(), String::new(), at_most.to_string(), verdict]);
}

pub(super) fn mb(kb: f64) -> String {
    format!("{:.2} MB", kb / 1_024.0)
}

fn verdict(value: f64, at_most: f64) -> String {
    if value <= at_most { "held" } else { "NOT HELD" }.to_owned()
}
