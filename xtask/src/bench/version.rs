//! `--version`: the cost of starting at all.

use anyhow::Result;

use super::measure::{self, Subject};
use super::table::Table;
use super::{Bed, Bench};

pub(super) const BENCH: Bench = Bench {
    name: "version",
    what: "× is to a bare process start (true)",
    run: |bed| started(bed, "--version"),
};

/// The limit of CPU time, relative to a bare process start.
const AT_MOST: f64 = 3.0;

/// Both programs with one flag.
pub(super) fn started(bed: &Bed, flag: &str) -> Result<Table> {
    let subject = |name: &str| Subject::new(bed.program(name), &bed.scratch).args([flag]);
    let (caliban, cafleet) = (subject("caliban"), subject("cafleet"));
    let [bare, caliban, cafleet] = measure::costs([&bed.bare(), &caliban, &cafleet], bed.runs)?;
    let mut table = Table::of_costs();
    table.cost("true", bare, None);
    table.cost(format!("caliban {flag}"), caliban, Some(bare));
    table.cost(format!("cafleet {flag}"), cafleet, Some(bare));
    table.promise("CPU of caliban", caliban.cpu_us / bare.cpu_us.max(1.0), AT_MOST, "×");
    Ok(table)
}
