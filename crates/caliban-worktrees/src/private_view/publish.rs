//! Publishing: what the agent's git says becomes what the user's git says. The lock of the real index is held while refs, HEAD
//! and files of the record change, and the index is put in its place last. A publisher that is killed at any instant has
//! changed some of it: the next one compares again and changes the rest.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use caliban_rooted::{
    Below,
    tree::{self, FoundFile, nonce_name},
};
use rustix::fs::{OFlags, Timespec, Timestamps};

use super::base::{Base, Journal};
use super::index_file::Index;
use super::plan::{Plan, RecordChange, Update, plan};
use super::side::{Side, SideMark, digest};
use super::state_files::{self, StateFiles};
use super::{PrivateGit, words};
use crate::error::{Error, Result};
use crate::fast_import::find;
use crate::marker::Oid;

/// How long one waits for a git of the user's that holds the index.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const LOCK_LOOK: Duration = Duration::from_millis(10);
/// How often it is tried again when the user's git moved something meanwhile.
const TRIES: usize = 5;
/// A lock of a ref that does not change for so long was left by a publisher that was killed.
const LEFT_AFTER: Duration = Duration::from_millis(200);
/// A lock of ours is older than this much after the journal, in nanoseconds.
const LOCKED_AT_MOST: i128 = 60_000_000_000;
const NEW_INDEX: &str = "index.caliban-new";
const LOCK: &str = "index.lock";
const LOG: &str = "logs/HEAD";

/// What became of an attempt.
enum PublishAttempt {
    Done(Vec<String>),
    /// The user's git was faster.
    Again,
}

impl PrivateGit {
    /// Publishes what is new. Lines for the model. An error means that nothing or a part was published, and that the agent's
    /// git must stay as it is.
    pub(super) fn publish(&self, base: &mut Base) -> Result<Vec<String>> {
        self.recover(base)?;
        for _ in 0..TRIES {
            if self.signature()? == base.signature {
                return Ok(Vec::new());
            }
            match self.attempt(base)? {
                PublishAttempt::Done(notes) => return Ok(notes),
                PublishAttempt::Again => std::thread::sleep(LOCK_LOOK),
            }
        }
        Err(words("the repository changes all the time; it is tried again after the next command"))
    }

    fn attempt(&self, base: &mut Base) -> Result<PublishAttempt> {
        // Before the rest: what is written after this is published the next time.
        let signature = self.signature()?;
        let (inside, stash, outside) = (self.inside()?, self.stash()?, self.outside()?);
        let shown = match &inside.index {
            Some((index, _)) => {
                index.check().map_err(|why| words(&why))?;
                let populated = self.populated(index)?;
                Some(index.shown(|entry| populated.contains(&entry.path)))
            }
            None => None,
        };
        let mut plan = plan(&self.names, base, &inside, &stash, &outside, shown.as_ref());
        let wanted = plan.record.index.as_ref().or(shown.as_ref().filter(|_| plan.loses_head));
        let wanted = wanted.map(Index::objects).unwrap_or_default();
        let known: BTreeSet<Oid> = outside.refs.values().cloned().collect();
        if !plan.tips().is_empty() || !wanted.is_empty() || plan.record.state.is_some() {
            self.bring_out(&plan.tips(), &wanted, &known)?;
        }
        if let Some(state) = &mut plan.record.state {
            self.drop_broken(state)?;
        }
        let notes = self.keep_lost(&mut plan, shown.as_ref(), &outside)?;
        let time = inside.index.as_ref().map(|(_, time)| *time);
        if !self.carry_out(base, &plan, &outside, time)? {
            return Ok(PublishAttempt::Again);
        }
        self.write_soft(&inside, &outside)?;
        base.inside = inside.mark();
        base.stash = stash;
        base.signature = signature;
        base.journal = None;
        agree(&mut base.outside, &plan, &outside);
        base.write(&self.dir)?;
        Ok(PublishAttempt::Done(notes))
    }

    /// Submodules with files: their own configuration would count for the user's `git status`.
    fn populated(&self, index: &Index) -> Result<BTreeSet<Vec<u8>>> {
        let mut found = BTreeSet::new();
        let Ok(files) = tree::open_dir(&self.at.path) else { return Ok(found) };
        for entry in index.entries.iter().filter(|entry| entry.is_gitlink()) {
            let path = Path::new(std::ffi::OsStr::from_bytes(&entry.path)).join(".git");
            let at = find(&files, &path).map_err(|e| Error::at("looking at", &path, e))?;
            if !matches!(at, FoundFile::Nothing) {
                found.insert(entry.path.clone());
            }
        }
        Ok(found)
    }

    /// Files that name objects which are not there would stop the user's git.
    fn drop_broken(&self, state: &mut StateFiles) -> Result<()> {
        let named = |bytes: &[u8]| -> BTreeSet<Oid> {
            String::from_utf8_lossy(bytes).lines().filter_map(Oid::parse).collect()
        };
        let lost = self.lacks(&state.values().flat_map(|bytes| named(bytes)).collect())?;
        state.retain(|_, bytes| named(bytes).is_disjoint(&lost));
        Ok(())
    }

    /// Makes refs of what lost against the user's.
    fn keep_lost(&self, plan: &mut Plan, shown: Option<&Index>, outside: &Side) -> Result<Vec<String>> {
        let lost = std::mem::take(&mut plan.lost);
        let tip = plan.lost_tip.take();
        let mut kept: Vec<Oid> = lost.iter().cloned().collect();
        if let (true, Some(index), Some(tip)) = (plan.loses_head, shown, tip.as_ref()) {
            kept.extend(self.commit_of_index(index, tip)?);
        }
        let prefix = self.names.conflicts();
        let held: BTreeSet<&Oid> = outside.refs.values().collect();
        let mut number = 1;
        let mut notes = Vec::new();
        for oid in kept.into_iter().filter(|oid| !held.contains(oid)) {
            while outside.refs.contains_key(&format!("{prefix}{number}")) {
                number += 1;
            }
            let name = format!("{prefix}{number}");
            notes.push(format!(
                "[the user changed the branch, the index or HEAD of this worktree at the same time, and that counts: what this \
                 command committed or staged is kept as {name}]"
            ));
            plan.updates.push(Update { name, new: Some(oid), old: None });
            number += 1;
        }
        Ok(notes)
    }

    /// The agent's index as a commit on its HEAD, unless it says the same.
    fn commit_of_index(&self, index: &Index, tip: &Oid) -> Result<Option<Oid>> {
        let path = self.dir.join(nonce_name("index"));
        fs::write(&path, index.bytes(self.id_bytes())).map_err(|e| Error::at("writing", &path, e))?;
        let git = |command| self.repo.git.durable(self.repo.store(), command);
        let tree = git("write-tree").env("GIT_INDEX_FILE", &path).run_blocking();
        // Best effort by name: it is ours.
        let _gone = fs::remove_file(&path);
        // An index with conflicts in it is no tree; its objects are in the agent's store.
        let Some(tree) = tree?.oid() else { return Ok(None) };
        let same =
            git("rev-parse").args(["--verify", "--quiet"]).arg(format!("{tip}^{{tree}}")).run_blocking()?;
        if same.oid().as_ref() == Some(&tree) {
            return Ok(None);
        }
        let call = git("commit-tree").args([tree.as_str(), "-p", tip.as_str(), "-m", "staged by the agent"]);
        let call = call.env("GIT_AUTHOR_NAME", "Caliban").env("GIT_AUTHOR_EMAIL", "caliban@localhost");
        let call = call.env("GIT_COMMITTER_NAME", "Caliban").env("GIT_COMMITTER_EMAIL", "caliban@localhost");
        Ok(call.ok_blocking()?.oid())
    }

    /// Changes it all. False when the user's git was faster.
    fn carry_out(
        &self,
        base: &mut Base,
        plan: &Plan,
        outside: &Side,
        time: Option<Timespec>,
    ) -> Result<bool> {
        if plan.updates.is_empty() && plan.record.is_empty() {
            return Ok(true);
        }
        let refs = plan.updates.iter().map(|update| update.name.clone()).collect();
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        base.journal = Some(Journal { lock: None, refs, at });
        if !plan.moves_head {
            base.write(&self.dir)?;
            return self.update_refs(&plan.updates);
        }
        let lock = self.lock_index(base, plan.record.index.as_ref(), time)?;
        let done = self.under_lock(plan, outside);
        match (&done, &plan.record.index) {
            (Ok(true), Some(_)) => {
                let index = self.at.admin.join("index");
                #[expect(clippy::disallowed_methods, reason = "in the user's own record of the worktree")]
                fs::rename(&lock, &index).map_err(|e| Error::at("writing", &index, e))?;
            }
            _ => fs::remove_file(&lock).map_err(|e| Error::at("deleting", &lock, e))?,
        }
        done
    }

    fn under_lock(&self, plan: &Plan, outside: &Side) -> Result<bool> {
        let now = self.outside()?.mark();
        let then = outside.mark();
        if (&now.head, &now.index, &now.state) != (&then.head, &then.index, &then.state) {
            return Ok(false);
        }
        if !self.update_refs(&plan.updates)? {
            return Ok(false);
        }
        let RecordChange { head, state, .. } = &plan.record;
        if let Some(head) = head {
            self.replace("HEAD", head.text().as_bytes())?;
        }
        if let Some(state) = state {
            let record =
                tree::open_dir(&self.at.admin).map_err(|e| Error::at("opening", &self.at.admin, e))?;
            sync_files(record.as_fd(), &state_files::hard(&outside.state), &state_files::hard(state))
                .map_err(|e| Error::at("writing", &self.at.admin, e))?;
        }
        self.append_log()?;
        Ok(true)
    }

    /// Locks the real index with the file that becomes it.
    fn lock_index(&self, base: &mut Base, index: Option<&Index>, time: Option<Timespec>) -> Result<PathBuf> {
        let (new, lock) = (self.at.admin.join(NEW_INDEX), self.at.admin.join(LOCK));
        let failed = |e: io::Error| Error::at("writing", &new, e);
        match fs::remove_file(&new) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let mut file = File::create_new(&new).map_err(failed)?;
        if let Some(index) = index {
            file.write_all(&index.bytes(self.id_bytes())).map_err(failed)?;
        }
        set_time(&file, time).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        if let Some(journal) = &mut base.journal {
            journal.lock = Some(file.metadata().map_err(failed)?.ino());
        }
        base.write(&self.dir)?;
        let began = Instant::now();
        #[expect(clippy::disallowed_methods, reason = "in the user's own record of the worktree")]
        let linked = loop {
            match fs::hard_link(&new, &lock) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && began.elapsed() < LOCK_LIMIT => {
                    std::thread::sleep(LOCK_LOOK);
                }
                linked => break linked,
            }
        };
        fs::remove_file(&new).map_err(failed)?;
        match linked {
            Ok(()) => Ok(lock),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Err(words(&format!("another git holds {}", lock.display())))
            }
            Err(e) => Err(Error::at("locking", &lock, e)),
        }
    }

    /// All of them or none. False when one is not what it was.
    fn update_refs(&self, updates: &[Update]) -> Result<bool> {
        if updates.is_empty() {
            return Ok(true);
        }
        let zero = "0".repeat(self.id_bytes() * 2);
        let mut lines = String::from("start\n");
        for Update { name, new, old } in updates {
            let old = old.as_ref().map_or(zero.as_str(), Oid::as_str);
            match new {
                Some(new) => lines.push_str(&format!("update {name} {new} {old}\n")),
                None => lines.push_str(&format!("delete {name} {old}\n")),
            }
        }
        lines.push_str("prepare\ncommit\n");
        let call = self.repo.git.durable(self.repo.store(), "update-ref").args([
            "-m",
            "caliban: published",
            "--stdin",
        ]);
        let answer = call.stdin(lines.into_bytes()).run_blocking()?;
        if answer.status.success() {
            return Ok(true);
        }
        let is_race = ["but expected", "reference already exists", "File exists", "unable to resolve"];
        if is_race.iter().any(|words| answer.stderr.contains(words)) {
            Ok(false)
        } else {
            Err(answer.failure())
        }
    }

    /// Replaces a file of the record.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.at.admin.join(name);
        Below::new(name)
            .and_then(|name| self.write_in_record(&name, bytes))
            .map_err(|e| Error::at("writing", &path, e))
    }

    fn write_in_record(&self, name: &Below, bytes: &[u8]) -> io::Result<()> {
        let record = tree::open_dir(&self.at.admin)?;
        put(record.as_fd(), name, bytes, None)
    }

    /// Writes the files that no operation depends on, where they name what is there.
    fn write_soft(&self, inside: &Side, outside: &Side) -> Result<()> {
        let mut soft = state_files::outside(&inside.state, &self.names);
        let hard = state_files::hard(&soft);
        soft.retain(|path, bytes| !hard.contains_key(path) && outside.state.get(path) != Some(bytes));
        self.drop_broken(&mut soft)?;
        soft.iter().try_for_each(|(path, bytes)| {
            self.write_in_record(path, bytes)
                .map_err(|e| Error::at("writing", &path.under(&self.at.admin), e))
        })
    }

    /// Appends what is new in the agent's log of HEAD, line by line and only lines of a log.
    fn append_log(&self) -> Result<()> {
        let git = self.open_git()?;
        let own = self.open_own_record(&git)?;
        let inside =
            super::side::read(own.as_fd(), &Below::fixed(LOG), super::side::CAP)?.unwrap_or_default();
        let record = tree::open_dir(&self.at.admin).map_err(|e| Error::at("opening", &self.at.admin, e))?;
        let outside =
            super::side::read(record.as_fd(), &Below::fixed(LOG), super::side::CAP)?.unwrap_or_default();
        let known: BTreeSet<&[u8]> = outside.split(|byte| *byte == b'\n').collect();
        let new: Vec<(&[u8], [Oid; 2])> = inside
            .split(|byte| *byte == b'\n')
            .filter(|line| !known.contains(line))
            .filter_map(|line| Some((line, log_line(line)?)))
            .collect();
        let named = new.iter().flat_map(|(_, oids)| oids).filter(|oid| !oid.is_zero());
        let lost = self.lacks(&named.cloned().collect())?;
        let text: Vec<u8> = new
            .iter()
            .filter(|(_, oids)| !oids.iter().any(|oid| lost.contains(oid)))
            .flat_map(|(line, _)| [line, &b"\n"[..]].concat())
            .collect();
        let append = || -> io::Result<()> {
            let logs = tree::make_to(&record, &Below::fixed("logs"))?;
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mode = rustix::fs::Mode::from_raw_mode(0o666);
            File::from(rustix::fs::openat(&logs, "HEAD", flags, mode)?).write_all(&text)
        };
        append().map_err(|e| Error::at("writing", &self.at.admin.join(LOG), e))
    }

    /// Takes away what a publisher that was killed has left. What the user's git holds stays.
    pub(super) fn recover(&self, base: &mut Base) -> Result<()> {
        let Some(journal) = &base.journal else { return Ok(()) };
        for name in [LOCK, NEW_INDEX] {
            let path = self.at.admin.join(name);
            // An inode that is free is soon another file's.
            let is_ours = |found: fs::Metadata| {
                Some(found.ino()) == journal.lock && changed(&found) < journal.time() + LOCKED_AT_MOST
            };
            if path.symlink_metadata().is_ok_and(is_ours) {
                fs::remove_file(&path).map_err(|e| Error::at("deleting", &path, e))?;
            }
        }
        for name in &journal.refs {
            let path = self.repo.common_dir().join(format!("{name}.lock"));
            let stamp = || path.symlink_metadata().ok().map(|found| (found.ino(), changed(&found)));
            let Some(first) = stamp() else { continue };
            if first.1 < journal.time() {
                continue;
            }
            std::thread::sleep(LEFT_AFTER);
            if stamp() == Some(first) {
                fs::remove_file(&path).map_err(|e| Error::at("deleting", &path, e))?;
            }
        }
        base.journal = None;
        base.signature = String::new();
        base.write(&self.dir)
    }
}

/// When a file last changed, in nanoseconds since 1970.
fn changed(found: &fs::Metadata) -> i128 {
    i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec())
}

/// What both sides agree on after a plan was carried out. What the user moved is not agreed on.
fn agree(agreed: &mut SideMark, plan: &Plan, outside: &Side) {
    // What says the same on both sides is agreed on, whoever moved it.
    let real = outside.mark();
    if plan.same.head {
        agreed.head = real.head;
    }
    if plan.same.index {
        agreed.index = real.index;
    }
    if plan.same.state {
        agreed.state = real.state;
    }
    for name in &plan.same.refs {
        match real.refs.get(name) {
            Some(oid) => agreed.refs.insert(name.clone(), oid.clone()),
            None => agreed.refs.remove(name),
        };
    }
    for update in &plan.updates {
        match &update.new {
            Some(new) => agreed.refs.insert(update.name.clone(), new.clone()),
            None => agreed.refs.remove(&update.name),
        };
    }
    let RecordChange { head, index, state } = &plan.record;
    if let Some(head) = head {
        agreed.head = Some(head.clone());
    }
    if let Some(index) = index {
        agreed.index = Some(index.digest());
    }
    if let Some(state) = state {
        agreed.state = digest(&state_files::hard(state));
    }
    if plan.loses_head {
        // The user's HEAD won: treat everything but refs as unsynced until the next refresh.
        *agreed = SideMark { refs: std::mem::take(&mut agreed.refs), ..SideMark::default() };
    }
}

/// The commits that a line of a log says HEAD went from and came to.
fn log_line(line: &[u8]) -> Option<[Oid; 2]> {
    let text = std::str::from_utf8(line).ok()?;
    let (head, _message) = text.split_once('\t').unwrap_or((text, ""));
    let mut words = head.split(' ');
    let (old, new) = (Oid::parse(words.next()?)?, Oid::parse(words.next()?)?);
    let rest: Vec<&str> = words.collect();
    let [.., address, when, zone] = rest.as_slice() else { return None };
    let is_time = when.bytes().all(|byte| byte.is_ascii_digit()) && zone.len() == 5;
    (old.as_str().len() == new.as_str().len() && is_time && address.ends_with('>') && !text.contains('\r'))
        .then_some([old, new])
}

/// Sets the time of an index: files that were written in the same moment have to be looked at again.
pub(super) fn set_time(file: &File, time: Option<Timespec>) -> io::Result<()> {
    let Some(time) = time else { return Ok(()) };
    Ok(rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time })?)
}

/// Puts a file in its place beneath a directory, whole or not at all.
pub(super) fn put(
    root: std::os::fd::BorrowedFd<'_>,
    name: &Below,
    bytes: &[u8],
    time: Option<Timespec>,
) -> io::Result<()> {
    tree::replace(root, name, 0o666, |file| {
        file.write_all(bytes)?;
        set_time(file, time)?;
        file.sync_all()
    })
}

/// Makes these files of a directory others, and deletes what is not among them.
pub(super) fn sync_files(
    root: std::os::fd::BorrowedFd<'_>,
    now: &StateFiles,
    wanted: &StateFiles,
) -> io::Result<()> {
    for (path, bytes) in wanted.iter().filter(|(path, bytes)| now.get(*path) != Some(bytes)) {
        put(root, path, bytes, None)?;
    }
    for name in now.keys().filter(|name| !wanted.contains_key(*name)) {
        tree::delete(root, name)?;
    }
    // A directory of an operation that has ended says that it goes on.
    let tops = |files: &StateFiles| -> BTreeSet<Below> {
        files.keys().filter_map(Below::split).map(|(top, _)| top).filter(|top| !top.is_here()).collect()
    };
    for top in tops(now).difference(&tops(wanted)) {
        tree::delete(root, top)?;
    }
    Ok(())
}
