//! The size of the first request for a one-line prompt, which every conversation pays for.

use anyhow::{Context as _, Result};

use super::capture::Capture;
use super::measure::Subject;
use super::table::{Table, times};
use super::{Bed, Bench, repo, rivals};

pub(super) const BENCH: Bench = Bench {
    name: "request",
    what: "the body of the first request for \"hello\"; × is to caliban's on Anthropic's protocol",
    run,
};

/// The limit, in KB.
const AT_MOST_KB: f64 = 12.0;

fn run(bed: &Bed) -> Result<Table> {
    let repo = repo::small(bed)?;
    let capture = Capture::start()?;
    let home = bed.dir("caliban-home")?;
    let url = capture.url.as_str();
    let caliban = |provider: &str, variable: &str, path: &str| {
        Subject::new(bed.program("caliban"), &home)
            .dir(&repo)
            .env(variable, format!("{url}{path}"))
            .env(&variable.replace("BASE_URL", "API_KEY"), "none")
            .args(["--provider", provider, "--model", "a-model", "-p", "hello"])
    };
    let mut subjects = vec![
        ("caliban, anthropic", caliban("anthropic", "ANTHROPIC_BASE_URL", "")),
        ("caliban, openai (Responses)", caliban("openai", "OPENAI_BASE_URL", "/v1")),
        ("caliban, openai-chat", caliban("openai-chat", "OPENAI_BASE_URL", "/v1")),
    ];
    subjects.extend(rivals::here(bed, url, &repo)?.into_iter().map(|rival| (rival.name, rival.subject)));
    let mut table = Table::new(&["KB", ""]);
    let mut base = None;
    for (name, subject) in subjects {
        // All of them end with an error because they are refused; only their requests matter.
        let status = subject.command()?.status().with_context(|| format!("cannot run {name}"))?;
        let Some(bytes) = capture.first() else {
            table.remark(format!("{name} sent nothing and ended with {status}"));
            continue;
        };
        let kb = bytes as f64 / 1_000.0;
        let base = *base.get_or_insert(kb);
        table.row(name, [format!("{kb:.1}"), times(kb / base)]);
    }
    if let Some(kb) = base {
        table.promise("caliban's request", kb, AT_MOST_KB, " KB");
    }
    Ok(table)
}
