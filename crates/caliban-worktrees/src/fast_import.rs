//! Writing what a survey found into the store, byte for byte: one `git fast-import`, fed by us.
//!
//! We read every file ourselves, beneath the worktree's open directory, so no filter, attribute or link
//! has a say. The worktree's own index, logs and message files are not touched.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use caliban_rooted::{
    Below,
    tree::{self, FoundFile, nonce_name},
};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::git::GitCall;
use crate::leftovers::TEMPORARY;
use crate::marker::Oid;
use crate::survey::{SavePlan, Staged};

/// Files up to this size are read before their length is announced, so that a writer cannot spoil them.
const READ_WHOLE: u64 = 8 * 1024 * 1024;
/// The largest file whose line ends are converted.
pub(crate) const TEXT_CAP: u64 = 64 * 1024 * 1024;
/// What is put behind a name that git refuses in a tree.
pub const ESCAPE: &str = ".caliban-rescue";
/// Where things go that are no files of the worktree: conflict stages, submodule stores, an index that git cannot read.
pub const EXTRAS: &str = ".caliban-rescue";
/// Who makes rescue commits.
const IDENTITY: &str = "Caliban <caliban@localhost>";

pub(crate) struct Snapshot {
    pub(crate) head: Option<Oid>,
    pub(crate) other_parents: Vec<Oid>,
    pub(crate) files: Option<OwnedFd>,
    pub(crate) plan: SavePlan,
    /// Paths whose CRLF line ends become LF.
    pub(crate) text: BTreeSet<PathBuf>,
    pub(crate) message: String,
    /// Who makes the commit; `None` is Caliban.
    pub(crate) identity: Option<Identity>,
    /// The refs that hold the commits until the caller made its own; see [`write`].
    pub(crate) refs: TemporaryRefs,
}

impl Snapshot {
    /// On `head` alone, by Caliban, under refs of its own.
    pub(crate) fn new(head: Option<Oid>, files: Option<OwnedFd>, plan: SavePlan, message: String) -> Self {
        let (other_parents, text) = (Vec::new(), BTreeSet::new());
        Self { head, other_parents, files, plan, text, message, identity: None, refs: TemporaryRefs::new() }
    }
}

/// Who makes a commit, each as `Name <address> seconds zone`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) author: String,
    pub(crate) committer: String,
}

impl Identity {
    fn caliban() -> Self {
        let when = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let author = format!("{IDENTITY} {when} +0000");
        Self { committer: author.clone(), author }
    }
}

/// Names of refs that live for the length of one call.
#[derive(Debug, Clone)]
pub(crate) struct TemporaryRefs {
    pub(crate) tree: String,
    pub(crate) index: String,
}

impl TemporaryRefs {
    pub(crate) fn new() -> Self {
        let base = nonce_name(&format!("{TEMPORARY}/save"));
        Self { tree: format!("{base}-tree"), index: format!("{base}-index") }
    }
}

/// Writes the snapshot and gives its commit, through `fast_import` (a prepared call of that command on the store that is to have it).
pub(crate) async fn write(fast_import: GitCall, snapshot: Snapshot) -> Result<Oid> {
    let (reader, writer) = io::pipe().map_err(|e| Error::io("opening a pipe", e))?;
    let call = fast_import.args(["--quiet", "--done", "--depth=0"]);
    let running = call.start(Stdio::from(reader), Stdio::piped())?;
    let stop = running.cancel.clone();
    let feed = tokio::task::spawn_blocking(move || {
        let mut out = BufWriter::with_capacity(256 * 1024, writer);
        feed(&snapshot, &mut out, &stop)
    });
    let output = running.finish().await;
    let fed = feed.await.map_err(|e| Error::io("saving", io::Error::other(e)))?;
    let output = output?;
    match fed {
        // Its own words say why it stopped listening.
        Err(Error::Io { source, .. })
            if source.kind() == io::ErrorKind::BrokenPipe && !output.status.success() =>
        {
            return Err(output.failure());
        }
        Err(e) => return Err(e),
        Ok(()) => {}
    }
    let output = output.ok()?;
    let marks: Vec<Oid> = String::from_utf8_lossy(&output.stdout).lines().filter_map(Oid::parse).collect();
    marks.last().cloned().ok_or_else(|| Error::Answer { command: "fast-import", detail: output.line() })
}

/// The whole stream.
fn feed(snapshot: &Snapshot, out: &mut impl Write, cancel: &CancellationToken) -> Result<()> {
    let sent = |e| Error::io("writing to git fast-import", e);
    let plan = &snapshot.plan;
    let identity = snapshot.identity.clone().unwrap_or_else(Identity::caliban);
    writeln!(out, "feature done").map_err(sent)?;
    if !plan.staged.is_empty() {
        let message =
            format!("{}\n\nThe index of the worktree.\n", snapshot.message.lines().next().unwrap_or("index"));
        begin(out, &snapshot.refs.index, 1, &identity, &message, snapshot.head.as_ref()).map_err(sent)?;
        staged(out, &plan.staged).map_err(sent)?;
        writeln!(out).map_err(sent)?;
    }
    begin(out, &snapshot.refs.tree, 2, &identity, &snapshot.message, snapshot.head.as_ref()).map_err(sent)?;
    if !plan.staged.is_empty() {
        writeln!(out, "merge :1").map_err(sent)?;
    }
    for parent in &snapshot.other_parents {
        writeln!(out, "merge {parent}").map_err(sent)?;
    }
    changes(snapshot, out, cancel)?;
    writeln!(out, "\nget-mark :2\ndone").and_then(|()| out.flush()).map_err(sent)
}

fn begin(
    out: &mut impl Write,
    to: &str,
    mark: u8,
    Identity { author, committer }: &Identity,
    message: &str,
    from: Option<&Oid>,
) -> io::Result<()> {
    writeln!(out, "commit {to}\nmark :{mark}\nauthor {author}\ncommitter {committer}")?;
    writeln!(out, "data {}\n{message}", message.len())?;
    match from {
        Some(from) => writeln!(out, "from {from}"),
        None => Ok(()),
    }
}

fn staged(out: &mut impl Write, entries: &[Staged]) -> io::Result<()> {
    for Staged { path, .. } in entries.iter().filter(|s| s.entry.is_none()) {
        delete(out, path)?;
    }
    for Staged { path, entry } in entries {
        if let Some((mode, oid)) = entry {
            out.write_all(format!("M {mode} {oid} ").as_bytes())?;
            out.write_all(&quote(&escaped(path)))?;
            out.write_all(b"\n")?;
        }
    }
    Ok(())
}

fn delete(out: &mut impl Write, path: &Path) -> io::Result<()> {
    out.write_all(b"D ")?;
    out.write_all(&quote(path))?;
    out.write_all(b"\n")
}

fn changes(snapshot: &Snapshot, out: &mut impl Write, cancel: &CancellationToken) -> Result<()> {
    let sent = |e| Error::io("writing to git fast-import", e);
    let plan = &snapshot.plan;
    let mut paths: Vec<PathBuf> = Vec::new();
    if let Some(files) = &snapshot.files {
        paths.extend(plan.paths.iter().cloned());
        for whole in &plan.whole {
            let names = Below::new(whole).and_then(|name| tree::files_beneath(files, &name));
            paths.extend(names.map_err(|e| unreadable(whole, &e))?.iter().map(as_git_says));
        }
        paths.sort();
        paths.dedup();
        // What is gone goes first: a file may have become a directory, or the other way round.
        for path in &paths {
            let found = find(files, path).map_err(|e| unreadable(path, &e))?;
            if matches!(found, FoundFile::Nothing | FoundFile::Directory | FoundFile::Special) {
                delete(out, path).map_err(sent)?;
            }
        }
    }
    staged(out, &plan.staged_only).map_err(sent)?;
    for entry in &plan.unmerged {
        let path = Path::new(EXTRAS).join("unmerged").join(entry.stage.to_string()).join(&entry.path);
        out.write_all(format!("M {} {} ", entry.mode, entry.oid).as_bytes())
            .and_then(|()| out.write_all(&quote(&escaped(&path))))
            .and_then(|()| out.write_all(b"\n"))
            .map_err(sent)?;
    }
    for path in &paths {
        let Some(files) = &snapshot.files else { break };
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        save_one(out, files.as_fd(), path, &escaped(path), snapshot.text.contains(path))?;
    }
    for (admin, name) in &plan.of_record {
        let cannot = |e: io::Error| unreadable(&admin.join(name), &e);
        let root = tree::open_dir(admin).map_err(cannot)?;
        let name = Below::new(name).map_err(cannot)?;
        let names = match tree::find(&root, &name).map_err(cannot)? {
            FoundFile::Directory => tree::files_beneath(&root, &name).map_err(cannot)?,
            _ => vec![name],
        };
        for path in names.iter().map(as_git_says) {
            let to = escaped(&Path::new(EXTRAS).join(&path));
            save_one(out, root.as_fd(), &path, &to, false)?;
        }
    }
    Ok(())
}

fn save_one(out: &mut impl Write, root: BorrowedFd<'_>, from: &Path, to: &Path, is_text: bool) -> Result<()> {
    let sent = |e| Error::io("writing to git fast-import", e);
    let header = |mode: &str, length: u64, out: &mut dyn Write| -> io::Result<()> {
        out.write_all(format!("M {mode} inline ").as_bytes())?;
        out.write_all(&quote(to))?;
        out.write_all(format!("\ndata {length}\n").as_bytes())
    };
    match find(root, from).map_err(|e| unreadable(from, &e))? {
        FoundFile::Link(target) => {
            header("120000", target.len() as u64, out).map_err(sent)?;
            out.write_all(target.as_bytes()).and_then(|()| out.write_all(b"\n")).map_err(sent)
        }
        FoundFile::File { file, size, executable } => {
            let mode = if executable { "100755" } else { "100644" };
            let cap = if is_text { TEXT_CAP } else { READ_WHOLE };
            if is_text || size <= cap {
                let mut bytes = Vec::new();
                file.take(2 * cap).read_to_end(&mut bytes).map_err(|e| unreadable(from, &e))?;
                if bytes.len() as u64 == 2 * cap {
                    return Err(Error::ChangedWhileSaving(from.to_path_buf()));
                }
                if is_text {
                    bytes = with_unix_line_ends(&bytes);
                }
                header(mode, bytes.len() as u64, out).map_err(sent)?;
                return out.write_all(&bytes).and_then(|()| out.write_all(b"\n")).map_err(sent);
            }
            header(mode, size, out).map_err(sent)?;
            let copied = io::copy(&mut file.take(size), out).map_err(sent)?;
            if copied != size {
                return Err(Error::ChangedWhileSaving(from.to_path_buf()));
            }
            out.write_all(b"\n").map_err(sent)
        }
        FoundFile::Directory | FoundFile::Special | FoundFile::Nothing => Ok(()),
    }
}

/// `CRLF` as `LF`.
pub(crate) fn with_unix_line_ends(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().peekable();
    while let Some(byte) = rest.next() {
        if *byte != b'\r' || rest.peek() != Some(&&b'\n') {
            out.push(*byte);
        }
    }
    out
}

/// What is called so in git: a path from the top of a worktree.
pub(crate) fn find(top: impl AsFd, path: &Path) -> io::Result<FoundFile> {
    tree::find(top, &Below::new(path)?)
}

fn as_git_says(name: &Below) -> PathBuf {
    name.under(Path::new(""))
}

fn unreadable(path: &Path, e: &io::Error) -> Error {
    Error::Unreadable(format!("{}: {e}", path.display()))
}

/// A path for the stream, quoted as git reads it back: any byte is allowed.
fn quote(path: &Path) -> Vec<u8> {
    let mut out = vec![b'"'];
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            b'\n' => out.extend(b"\\n"),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
    out
}

/// The path with every component that git refuses (`.git` and what some file systems take for it) renamed.
pub(crate) fn escaped(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path {
        if is_dot_git(part) {
            let mut name = part.to_os_string();
            name.push(ESCAPE);
            out.push(name);
        } else {
            out.push(part);
        }
    }
    out
}

fn is_dot_git(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    // Code points that HFS+ ignores, and what NTFS cuts from the end.
    let text: String = String::from_utf8_lossy(bytes)
        .chars()
        .filter(|c| !matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'))
        .collect();
    let text = text.split(':').next().unwrap_or_default().trim_end_matches([' ', '.']).to_ascii_lowercase();
    text == ".git" || text == "git~1"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_refuses_are_escaped() {
        let shown = |text: &str| escaped(Path::new(text)).to_string_lossy().into_owned();
        assert_eq!(shown("a/.git/config"), "a/.git.caliban-rescue/config");
        assert_eq!(shown("a/.GIT/x"), "a/.GIT.caliban-rescue/x");
        assert_eq!(shown("git~1"), "git~1.caliban-rescue");
        assert_eq!(shown(".g\u{200c}it/x"), ".g\u{200c}it.caliban-rescue/x");
        assert_eq!(shown(".gitignore"), ".gitignore");
        assert_eq!(shown("a/.github/x"), "a/.github/x");
    }

    #[test]
    fn paths_are_quoted() {
        assert_eq!(quote(Path::new("a \"b\"\n\\c")), b"\"a \\\"b\\\"\\n\\\\c\"");
    }
}
