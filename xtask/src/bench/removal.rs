//! `caliban rm` of 200 agents that are done, relative to bare `git worktree remove` of as many trees.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use super::fleet_place::BenchFleet;
use super::measure::{self, Subject};
use super::table::Table;
use super::{Bed, Bench, repo};
use crate::run;

pub(super) const BENCH: Bench =
    Bench { name: "rm", what: "200 agents with a worktree each; × is to 200 `git worktree remove`", run };

const AGENTS: usize = 200;
/// The limit of the wall time, relative to git.
const AT_MOST: f64 = 2.0;

fn run(bed: &Bed) -> Result<Table> {
    let script = bed.dir("rm-script")?.join("script.json");
    std::fs::write(&script, r#"{"steps": [{"text": "Done.", "repeat": true}]}"#)
        .context("cannot write the script")?;
    let place = BenchFleet::new(bed, "rm", "http://127.0.0.1:9", 4)?;
    let script = script.to_string_lossy().into_owned();
    let mut ids = Vec::new();
    for _ in 0..AGENTS {
        let spawned =
            place.output(&["--isolation", "worktree", "--script", &script, "--bg", "say that it is done"])?;
        ids.push(spawned.trim().to_owned());
    }
    let all: Vec<&str> = ids.iter().map(String::as_str).collect();
    place.output(&[&["agents", "wait"][..], &all].concat())?;
    let ours = measure::once(&place.subject(&[&["rm"][..], &all].concat()))?;
    ensure!(place.daemon()?.rows()?.is_empty(), "agents are left");
    place.end()?;

    let root = repo::small(bed)?;
    let trees = bed.dir("rm-trees")?;
    for n in 0..AGENTS {
        let tree = trees.join(n.to_string());
        worktree(bed, &root, &["add", "--quiet", "--detach"], &tree)?;
    }
    let loop_of_git = format!(
        "for n in $(seq 0 {}); do git worktree remove {}/$n || exit 1; done",
        AGENTS - 1,
        trees.display()
    );
    let git = measure::once(&Subject::new("sh", &bed.scratch).dir(&root).args(["-c", &loop_of_git]))?;

    let mut table = Table::of_costs();
    table.cost("git worktree remove, in a loop", git, None);
    table.cost("caliban rm", ours, Some(git));
    table.remark("the daemon's and its git's CPU time is not in the row of caliban");
    table.promise("wall time of caliban rm", ours.wall_us / git.wall_us.max(1.0), AT_MOST, "×");
    Ok(table)
}

fn worktree(bed: &Bed, root: &Path, args: &[&str], tree: &Path) -> Result<()> {
    let mut git = repo::git(root, &bed.scratch);
    git.arg("worktree").args(args).arg(tree).stdin(Stdio::null());
    run::output(&mut git).map(drop)
}
