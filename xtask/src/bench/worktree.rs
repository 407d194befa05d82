//! A worktree of a repo with 50,000 files, made like an agent's, relative to git's own with parallel checkout.

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use super::measure::{self, Cost, Subject};
use super::table::Table;
use super::{Bed, Bench, repo};
use crate::run;

pub(super) const BENCH: Bench = Bench {
    name: "worktree",
    what: "a worktree of 50,000 files; × is to `git -c checkout.workers=2 worktree add`",
    run,
};

/// The limit of the wall time, relative to git.
const AT_MOST: f64 = 1.1;

/// Each run writes hundreds of megabytes, so a few runs suffice.
const RUNS: usize = 7;

const DIRECTORIES: usize = 500;
const FILES_IN_EACH: usize = 100;
const FILES: usize = DIRECTORIES * FILES_IN_EACH;
/// Files have between one and this many lines.
const MAX_LINES: usize = 60;

fn run(bed: &Bed) -> Result<Table> {
    let repo = large(bed)?;
    let plain = bed.dir("plain")?.join("tree");
    let runs = bed.runs.min(RUNS);
    let ours = |base: &str| -> Result<Subject> {
        Ok(Subject::new(bed.example("create")?, &bed.scratch).dir(&repo).args([".", "bench", base]))
    };
    let (head, fresh) = (ours("head")?, ours("fresh")?);
    let git = Subject::new("git", &bed.scratch)
        .dir(&repo)
        .args(["-c", "checkout.workers=2", "worktree", "add", "--quiet", "-b", "plain"])
        .args([plain.to_string_lossy()]);
    let ours_at = repo.join(".caliban/worktrees/bench");
    let (mut by_us, mut by_git, mut by_fresh) = (Vec::new(), Vec::new(), Vec::new());
    clean(bed, &repo, &ours_at, "caliban/bench");
    clean(bed, &repo, &plain, "plain");
    for n in 0..=runs {
        let mine = || timed(bed, &repo, &head, &ours_at, "caliban/bench");
        let gits = || timed(bed, &repo, &git, &plain, "plain");
        // The order alternates, so that neither always runs second.
        let (mine, gits) = if n % 2 == 0 {
            let mine = mine()?;
            (mine, gits()?)
        } else {
            let gits = gits()?;
            (mine()?, gits)
        };
        let fresh = timed(bed, &repo, &fresh, &ours_at, "caliban/bench")?;
        // The first run of each is the warm-up.
        if n > 0 {
            by_us.push(mine);
            by_git.push(gits);
            by_fresh.push(fresh);
        }
    }
    let (by_us, by_git, by_fresh) =
        (measure::summed_up(&by_us), measure::summed_up(&by_git), measure::summed_up(&by_fresh));
    let mut table = Table::of_costs();
    table.cost("git worktree add", by_git, None);
    table.cost("caliban", by_us, Some(by_git));
    table.cost("caliban, base_ref fresh", by_fresh, Some(by_git));
    table.remark(format!("medians of {runs} runs, {FILES} files"));
    table.promise("wall time of caliban", by_us.wall_us / by_git.wall_us.max(1.0), AT_MOST, "×");
    Ok(table)
}

fn timed(bed: &Bed, repo: &Path, subject: &Subject, at: &Path, branch: &str) -> Result<Cost> {
    // Sync first, so that this run does not pay for the writes of the previous one.
    run::output(&mut run::command("sync"))?;
    let cost = measure::once(subject);
    let there = at.join("d0").join("f0.rs").is_file() || at.join("README.md").is_file();
    clean(bed, repo, at, branch);
    let cost = cost?;
    ensure!(there, "no files were checked out in {}", at.display());
    Ok(cost)
}

/// Removes a worktree and its branch, if they exist.
fn clean(bed: &Bed, repo: &Path, at: &Path, branch: &str) {
    let path = at.to_string_lossy();
    for args in [&["worktree", "remove", "--force", &path][..], &["branch", "-D", branch]] {
        let mut git = repo::git(repo, &bed.scratch);
        // Best effort: they may not exist, and a leftover makes the next run fail.
        let _ = git.args(args).stdin(Stdio::null()).output();
    }
}

/// The repo, which is made once and kept.
fn large(bed: &Bed) -> Result<PathBuf> {
    let repo = bed.cache.join(format!("repo-{FILES}"));
    if repo.join(".git/made").is_file() {
        return Ok(repo);
    }
    run::say(&format!("making a repo of {FILES} files, once"));
    if repo.exists() {
        std::fs::remove_dir_all(&repo).with_context(|| format!("cannot remove {}", repo.display()))?;
    }
    std::fs::create_dir_all(&repo).with_context(|| format!("cannot create {}", repo.display()))?;
    run::output(repo::git(&repo, &bed.scratch).args(["init", "--quiet", "--initial-branch=main"]))?;
    let mut import = repo::git(&repo, &bed.scratch)
        .args(["fast-import", "--quiet"])
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run git fast-import")?;
    let stdin = import.stdin.take().context("git fast-import reads nothing")?;
    imported(BufWriter::new(stdin)).context("cannot write to git fast-import")?;
    ensure!(import.wait().context("git fast-import")?.success(), "git fast-import failed");
    run::output(repo::git(&repo, &bed.scratch).args(["reset", "--quiet", "--hard", "main"]))?;
    run::output(repo::git(&repo, &bed.scratch).args(["repack", "-a", "-d", "--quiet"]))?;
    std::fs::write(repo.join(".git/made"), "").context("cannot mark the repo")?;
    Ok(repo)
}

/// One commit, in git's import format.
fn imported(mut out: impl std::io::Write) -> std::io::Result<()> {
    writeln!(out, "commit refs/heads/main\ncommitter bench <bench@localhost> 1700000000 +0000\ndata 3\nall")?;
    writeln!(out, "M 100644 inline README.md\ndata 6\nlarge\n")?;
    for n in 0..FILES {
        let (directory, file) = (n / FILES_IN_EACH, n % FILES_IN_EACH);
        let lines = 1 + n * 7919 % MAX_LINES;
        let text: String =
            (0..lines).map(|line| format!("pub const LINE_{line}: usize = {n} + {line};\n")).collect();
        writeln!(out, "M 100644 inline d{directory}/f{file}.rs\ndata {}\n{text}", text.len())?;
    }
    out.flush()
}
