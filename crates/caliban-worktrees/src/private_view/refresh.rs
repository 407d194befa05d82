//! Taking in what the user's git says, before a command of the agent's and only after everything of the agent's was published.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use caliban_rooted::{Below, tree};

use super::base::Base;
use super::index_file::Index;
use super::names::STASH;
use super::publish::{put, sync_files};
use super::side::{CAP, Side, packed, read};
use super::{CONFIG, PrivateGit, state_files};
use crate::error::{Error, Result};

/// Files of the repository that the agent has copies of.
const COPIED: [&str; 4] = ["HEAD", "info/exclude", "info/attributes", "shallow"];

impl PrivateGit {
    /// Makes the agent's git say what the user's says. No command of the agent's may be running.
    pub(super) fn refresh(&self, base: &mut Base) -> Result<()> {
        let outside = self.outside()?;
        let (real, copied) = (outside.mark(), self.copied());
        if real == base.outside && copied == base.copied {
            return Ok(());
        }
        let failed = |e: io::Error| Error::at("refreshing", &self.git_dir(), e);
        if copied != base.copied {
            self.copy_files().map_err(failed)?;
        }
        if real != base.outside {
            self.take_in(base, &outside)?;
        }
        base.inside = self.inside()?.mark();
        base.outside = real;
        base.copied = copied;
        base.signature = self.signature()?;
        base.write(&self.dir)
    }

    /// Changes with the files that are copied.
    fn copied(&self) -> String {
        let of = |path: &Path| {
            path.metadata().ok().map(|found| (found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
        };
        let files = COPIED.map(|name| of(&self.repo.common_dir().join(name)));
        format!("{files:?} {}", self.config)
    }

    fn copy_files(&self) -> io::Result<()> {
        let git = tree::open_dir(&self.git_dir())?;
        for name in COPIED {
            match std::fs::read(self.repo.common_dir().join(name)) {
                Ok(bytes) => put(git.as_fd(), &Below::fixed(name), &bytes, None)?,
                Err(e) if e.kind() == io::ErrorKind::NotFound => tree::delete(&git, &Below::fixed(name))?,
                Err(e) => return Err(e),
            }
        }
        put(git.as_fd(), &Below::fixed(CONFIG), self.config.as_bytes(), None)
    }

    fn take_in(&self, base: &Base, outside: &Side) -> Result<()> {
        let failed = |e: io::Error| Error::at("refreshing", &self.git_dir(), e);
        let git = self.open_git()?;
        let own = self.open_own_record(&git)?;
        let inside = self.inside()?;
        let mut refs = self.names.view(&outside.refs);
        // git may have packed the agent's stash.
        let before = packed(&read(git.as_fd(), &Below::fixed("packed-refs"), CAP)?.unwrap_or_default());
        refs.extend(before.get(STASH).map(|oid| (STASH.to_owned(), oid.clone())));
        let lines: String = refs.iter().map(|(name, oid)| format!("{oid} {name}\n")).collect();
        put(
            git.as_fd(),
            &Below::fixed("packed-refs"),
            format!("# pack-refs with: sorted \n{lines}").as_bytes(),
            None,
        )
        .map_err(failed)?;
        for path in tree::files_beneath(&git, &Below::fixed("refs")).map_err(failed)? {
            if path != Below::fixed(STASH) {
                tree::delete(&git, &path).map_err(failed)?;
            }
        }
        let real = outside.mark();
        if real.index != base.outside.index
            && let Some((index, time)) = &outside.index
        {
            let index = with_gitlinks(index, inside.index.as_ref().map(|(index, _)| index), base);
            put(own.as_fd(), &Below::fixed("index"), &index.bytes(self.id_bytes()), Some(*time))
                .map_err(failed)?;
        }
        if real.state != base.outside.state {
            let wanted = state_files::inside(&outside.state, &self.names);
            sync_files(own.as_fd(), &inside.state, &wanted).map_err(failed)?;
        }
        let head = outside.head.as_ref().map(|head| head.renamed(|name| self.names.inside(name)));
        if let Some(head) = head.filter(|head| inside.head.as_ref() != Some(head)) {
            put(own.as_fd(), &Below::fixed("HEAD"), head.text().as_bytes(), None).map_err(failed)?;
        }
        let record = tree::open_dir(&self.at.admin).map_err(failed)?;
        if let Some(log) = read(record.as_fd(), &Below::fixed("logs/HEAD"), CAP)? {
            put(own.as_fd(), &Below::fixed("logs/HEAD"), &log, None).map_err(failed)?;
        }
        Ok(())
    }

    /// Takes away what a git of the agent's that was killed has left. No command of the agent's may be running.
    pub(super) fn sweep_locks(&self) -> Result<()> {
        let failed = |e: io::Error| Error::at("tidying", &self.git_dir(), e);
        let git = tree::open_dir(&self.git_dir()).map_err(failed)?;
        let mut files = tree::files_beneath(&git, &Below::fixed("refs")).map_err(failed)?;
        files.extend(tree::files_beneath(&git, &Below::fixed("worktrees")).map_err(failed)?);
        for (name, _) in tree::entries(&git).map_err(failed)? {
            files.push(Below::new(name).map_err(failed)?);
        }
        for path in files {
            if path.bytes().ends_with(b".lock") || path == Below::fixed("gc.pid") {
                tree::delete(&git, &path).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// The user's index with the submodules that were kept from it.
fn with_gitlinks(index: &Index, own: Option<&Index>, base: &Base) -> Index {
    let mut entries = index.entries.clone();
    // Nothing was kept from an index that says the same inside and outside.
    if base.inside.index != base.outside.index {
        let paths: std::collections::BTreeSet<&[u8]> =
            index.entries.iter().map(|entry| entry.path.as_slice()).collect();
        let kept = own.into_iter().flat_map(|own| &own.entries);
        entries.extend(
            kept.filter(|entry| entry.is_gitlink() && !paths.contains(entry.path.as_slice())).cloned(),
        );
        entries.sort_by(|a, b| a.key().cmp(&b.key()));
    }
    Index { entries }
}
