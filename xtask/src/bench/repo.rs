//! Small git repositories for benchmarks to work in.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Bed;
use crate::run;

/// Number of files in the small repo.
pub(super) const FILES: usize = 20;

/// A repo with a few files and one commit.
pub(super) fn small(bed: &Bed) -> Result<PathBuf> {
    let repo = bed.dir("repo")?;
    if repo.join(".git").exists() {
        return Ok(repo);
    }
    let src = repo.join("src");
    std::fs::create_dir_all(&src).context("cannot create src")?;
    for n in 0..FILES {
        std::fs::write(src.join(format!("part_{n}.rs")), text(n)).context("cannot write a file")?;
    }
    for args in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "--message", "all"]] {
        run::output(git(&repo, &bed.scratch).args(args))?;
    }
    Ok(repo)
}

/// A repo with many files that git does not know, a dozen in each directory, and repositories among them.
pub(super) fn large(bed: &Bed, files: usize, nested: usize) -> Result<PathBuf> {
    const IN_DIRECTORY: usize = 12;
    const IN_PART: usize = 30;
    let repo = bed.dir(&format!("repo-{files}"))?;
    if repo.join("ready").exists() {
        return Ok(repo);
    }
    run::output(git(&repo, &bed.scratch).args(["init", "--quiet"]))?;
    for n in 0..files {
        let directory = n / IN_DIRECTORY;
        let (part, module) = (directory / IN_PART, directory % IN_PART);
        let directory = repo.join(format!("part-{part}/module-{module}"));
        if n % IN_DIRECTORY == 0 {
            std::fs::create_dir_all(&directory).context("cannot create a directory")?;
        }
        std::fs::write(directory.join(format!("file_{n}.rs")), "").context("cannot write a file")?;
    }
    for n in 0..nested {
        let place = repo.join(format!("vendor/library-{n}"));
        std::fs::create_dir_all(&place).context("cannot create a directory")?;
        run::output(git(&place, &bed.scratch).args(["init", "--quiet"]))?;
    }
    std::fs::write(repo.join("ready"), "").context("cannot write a file")?;
    Ok(repo)
}

/// The content of `src/part_<n>.rs`.
pub(super) fn text(n: usize) -> String {
    format!("//! Part {n}.\n\npub fn part_{n}() -> usize {{\n    {n}\n}}\n")
}

/// Git without the user's configuration.
pub(super) fn git(repo: &Path, home: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(repo)
        .env("HOME", home)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    git.args(["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]);
    git
}
