//! One turn of `caliban -p hello`, over HTTP against a model server without latency, compared with the other agents on
//! this machine.

use anyhow::Result;
use serde_json::json;

use super::measure::{self, Subject};
use super::server::BenchServer;
use super::table::{Table, times};
use super::{Bed, Bench, repo, rivals};

pub(super) const BENCH: Bench = Bench {
    name: "turn",
    what: "one answer from a local model server without latency; × is to a bare process start (true)",
    run,
};

/// The promised factor by which CPU time and memory are below codex's.
const LESS_THAN_CODEX: f64 = 10.0;

/// The other agents are slow, so they run less often.
const RUNS_OF_OTHERS: usize = 10;

fn run(bed: &Bed) -> Result<Table> {
    let repo = repo::small(bed)?;
    let server = BenchServer::start(bed, &json!({"steps": [{"repeat": true, "text": "Hello."}]}))?;
    let home = bed.dir("caliban-home")?;
    let scripted = Subject::new(bed.program("caliban"), &home).dir(&repo).args([
        "--provider",
        "scripted",
        "-p",
        "hello",
    ]);
    let caliban = over_http(bed, &server, &home)?.dir(&repo).args(["-p", "hello"]);
    let [bare, scripted, caliban] = measure::costs([&bed.bare(), &scripted, &caliban], bed.runs)?;
    let mut table = Table::of_costs();
    table.cost("true", bare, None);
    table.cost("caliban -p hello, scripted", scripted, Some(bare));
    table.cost("caliban -p hello", caliban, Some(bare));
    let rivals = rivals::here(bed, &server.url, &repo)?;
    if rivals.is_empty() {
        table.remark("neither codex nor claude is here to compare with");
    }
    for rival in rivals {
        let subjects =
            [&bed.bare(), &over_http(bed, &server, &home)?.dir(&repo).args(["-p", "hello"]), &rival.subject];
        let [bare, caliban, other] = measure::costs(subjects, bed.runs.min(RUNS_OF_OTHERS))?;
        table.cost(rival.name, other, Some(bare));
        let (cpu, memory) =
            (other.cpu_us / caliban.cpu_us.max(1.0), other.peak_kb / caliban.peak_kb.max(1.0));
        table.remark(format!(
            "caliban is {} less wall time, {} less CPU, {} less memory than {}",
            times(other.wall_us / caliban.wall_us.max(1.0)),
            times(cpu),
            times(memory),
            rival.name
        ));
        if rival.name.starts_with("codex") {
            let least = cpu.min(memory);
            let verdict = if least >= LESS_THAN_CODEX { "held" } else { "NOT HELD" };
            table.remark(format!("promised: {LESS_THAN_CODEX}× less CPU and memory than codex: {verdict}"));
        }
    }
    Ok(table)
}

/// `caliban` with Anthropic's protocol, pointed at the server.
pub(super) fn over_http(bed: &Bed, server: &BenchServer, home: &std::path::Path) -> Result<Subject> {
    Ok(Subject::new(bed.program("caliban"), home)
        .env("ANTHROPIC_BASE_URL", server.url.as_str())
        .env("ANTHROPIC_API_KEY", "none")
        .args(["--provider", "anthropic", "--model", "claude-sonnet-4-6"]))
}
