//! What the fence adds to a command: `true` in the edit fence, beside `true` without one. Both run as a command of an agent does,
//! under our reaper.

use anyhow::Result;

use super::measure::{self, Subject};
use super::table::{Table, ms};
use super::{Bed, Bench, repo};

pub(super) const BENCH: Bench = Bench {
    name: "fence",
    what: "a command in the edit fence; × is to the same command without a fence, both under the reaper",
    run: measured,
};

/// What the fence may add, in milliseconds.
const AT_MOST_MS: f64 = 6.0;

fn measured(bed: &Bed) -> Result<Table> {
    let project = repo::small(bed)?;
    let start = || -> Result<Subject> { Ok(Subject::new(bed.example("start")?, &bed.scratch)) };
    let reaper = bed.program("caliban");
    let plain = start()?.args([reaper.to_string_lossy()]);
    let fenced = start()?.args([reaper.to_string_lossy(), project.to_string_lossy()]);
    let [plain, fenced] = measure::costs([&plain, &fenced], bed.runs)?;
    let mut table = Table::of_costs();
    table.cost("true", plain, None);
    table.cost("true in the edit fence", fenced, Some(plain));
    let added = fenced.wall_us - plain.wall_us;
    table.remark(format!("added: {}", ms(added)));
    table.promise("added by the fence", added / 1_000.0, AT_MOST_MS, " ms");
    Ok(table)
}
