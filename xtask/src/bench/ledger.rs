//! What the ledger adds to a model request: one commit before it is sent and one after.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::table::{Table, ms, times};
use super::{Bed, Bench};
use crate::run;

pub(super) const BENCH: Bench = Bench {
    name: "ledger",
    what: "a request is reserved and settled in seven pools; × is to one bare SQLite commit",
    run,
};

/// The limit of both together, in milliseconds.
const AT_MOST_MS: f64 = 1.0;

fn run(bed: &Bed) -> Result<Table> {
    let program = bed.example("ledger")?;
    let dir = bed.dir("ledger")?;
    // One process for all rounds, because a worker keeps its connection.
    let rounds = (bed.runs * 10).to_string();
    let text = run::output(Command::new(program).arg(&dir).arg(rounds).stdin(Stdio::null()))?;
    let (bare, request) = text.trim().split_once(' ').with_context(|| format!("'{text}' is no answer"))?;
    let (bare, request): (f64, f64) = (bare.parse()?, request.parse()?);
    let mut table = Table::new(&["wall"]);
    table.row("one bare commit", [ms(bare)]);
    table.row("reserve and settle", [format!("{} {:>6}", ms(request), times(request / bare.max(1.0)))]);
    table.promise("reserve and settle", request / 1000.0, AT_MOST_MS, " ms");
    Ok(table)
}
