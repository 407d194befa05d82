//! What the screen wants of the machine: the list of files, an editor, the clipboard, a file.

use std::{
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use base64::Engine as _;
use tokio::{io::AsyncWriteExt as _, process::Command};

use crate::events::AgentEvent;

/// Files that are listed for `@`.
const FILES: usize = 20_000;
/// Entries of the history that are read.
const REMEMBERED: usize = 500;
/// How long a program may take to put something into the clipboard.
const COPY_WITHIN: Duration = Duration::from_secs(2);
/// The longest history file that is read.
const HISTORY_BYTES: u64 = 4 * 1024 * 1024;

/// The files below a directory that git does not ignore, in order.
pub(super) fn files(root: &Path) -> Vec<String> {
    let walk = ignore::WalkBuilder::new(root)
        .hidden(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build();
    let files =
        walk.filter_map(Result::ok).filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let mut files: Vec<String> = files
        .filter_map(|entry| Some(entry.path().strip_prefix(root).ok()?.to_str()?.to_owned()))
        .take(FILES)
        .collect();
    files.sort_unstable();
    files
}

/// Lets the person write in their editor. The terminal must be theirs.
pub(super) async fn edit(editor: &str, text: &str) -> Result<String, String> {
    let worded = |error: io::Error| format!("{editor}: {error}");
    let mut file = tempfile::Builder::new().prefix("caliban-").suffix(".md").tempfile().map_err(worded)?;
    file.write_all(text.as_bytes()).map_err(worded)?;
    let mut words = editor.split_whitespace();
    let program = words.next().ok_or("there is no editor: set EDITOR")?;
    let mut command = Command::new(program);
    let status = command.args(words).arg(file.path()).kill_on_drop(true).status().await.map_err(worded)?;
    if !status.success() {
        return Err(format!("{editor} ended with {status}; the draft is as it was"));
    }
    std::fs::read_to_string(file.path()).map_err(worded)
}

/// Gives a text to the first of these programs that takes it for the clipboard.
pub(super) async fn copy(programs: Vec<Vec<String>>, text: String) -> AgentEvent {
    for words in &programs {
        if feed(words, &text).await.is_ok_and(|status| status.success()) {
            return AgentEvent::Told("copied".to_owned());
        }
    }
    AgentEvent::NotCopied(text)
}

async fn feed(words: &[String], text: &str) -> io::Result<std::process::ExitStatus> {
    let (program, args) = words.split_first().ok_or_else(|| io::Error::other("no program"))?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes()).await?;
    }
    tokio::time::timeout(COPY_WITHIN, child.wait()).await?
}

/// The sequence that puts a text into the clipboard of the terminal (OSC 52).
pub(super) fn clipboard(text: &str) -> String {
    format!("\x1b]52;c;{}\x07", base64::engine::general_purpose::STANDARD.encode(text))
}

/// Writes a file that is not there yet.
pub(super) fn export(path: &Path, text: &str) -> Result<(), String> {
    let worded = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("{} is there already: /export with another name", path.display())
        }
        _ => format!("{}: {error}", path.display()),
    };
    let mut file = std::fs::File::create_new(path).map_err(worded)?;
    file.write_all(text.as_bytes()).map_err(worded)
}

/// What was written in earlier sessions, oldest first; of a long history its end. Best effort.
pub(super) fn remembered(path: &Path) -> Vec<String> {
    let text = read_end(path, HISTORY_BYTES).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(REMEMBERED);
    lines[from..].iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The last lines of a file that are in its last `bytes`.
fn read_end(path: &Path, bytes: u64) -> io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(bytes);
    file.seek(io::SeekFrom::Start(from))?;
    let mut end = Vec::new();
    file.take(bytes).read_to_end(&mut end)?;
    let text = String::from_utf8_lossy(&end).into_owned();
    // It begins in the middle of a line.
    Ok(if from == 0 {
        text
    } else {
        text.split_once('\n').map(|(_, rest)| rest.to_owned()).unwrap_or_default()
    })
}

/// Adds an entry to the history. Best effort: a history that cannot be written must not stop the work.
pub(super) fn remember(path: &PathBuf, text: &str) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let Ok(line) = serde_json::to_string(text) else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let _best_effort = file.and_then(|mut file| writeln!(file, "{line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_history_the_end_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.jsonl");
        let long = "x".repeat(100_000);
        for number in 0..60 {
            remember(&path, &format!("{number} {long}"));
        }
        assert!(path.metadata().unwrap().len() > HISTORY_BYTES);
        let remembered = remembered(&path);
        assert!(remembered.last().unwrap().starts_with("59 "));
        assert!(remembered.len() > 30 && remembered.iter().all(|entry| entry.ends_with(&long)));
    }
}
