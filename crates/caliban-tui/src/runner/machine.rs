//! What the screen wants of the machine: the list of files, an editor, the clipboard, a file.

use std::{
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use base64::Engine as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
};

use crate::events::{AgentEvent, Clip};

/// Files that are listed for `@`.
const FILES: usize = 20_000;
/// Entries of the history that are read.
const REMEMBERED: usize = 500;
/// How long a program may take to put something into the clipboard.
const COPY_WITHIN: Duration = Duration::from_secs(2);
/// The longest history file that is read.
const HISTORY_BYTES: u64 = 4 * 1024 * 1024;

/// A longer text of the clipboard, or a larger picture, is not pasted.
const CLIP_BYTES: u64 = 32 * 1024 * 1024;
/// Pasted pictures that are kept in their directory.
const PICTURES: usize = 50;

/// A program and its arguments.
pub type ProgramLine = Vec<String>;

/// What is around the screen: the person's programs, and what the terminal can do.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// The person's editor.
    pub editor: Option<String>,
    /// The shell for `!command`.
    pub shell: PathBuf,
    /// Programs that put their input into the clipboard; the first that can does it.
    pub copy: Vec<ProgramLine>,
    /// Programs that print the picture of the clipboard as PNG.
    pub paste_picture: Vec<ProgramLine>,
    /// Programs that print the text of the clipboard.
    pub paste_text: Vec<ProgramLine>,
    /// Where pasted pictures are kept.
    pub pictures: Option<PathBuf>,
    /// How the person is told that something waits while they look elsewhere.
    pub notice: NoticeKind,
    /// Whether the terminal is asked for its ground.
    pub tells_ground: bool,
}

/// How a terminal tells the person something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NoticeKind {
    /// It rings.
    #[default]
    Bell,
    /// OSC 9: iTerm2, WezTerm, Ghostty.
    Nine,
    /// OSC 99: kitty.
    NinetyNine,
    /// OSC 777: foot, urxvt.
    SevenHundred,
    /// Not at all.
    Nothing,
}

impl NoticeKind {
    /// The bytes that do it.
    pub(super) fn sequence(self, text: &str) -> String {
        let text = crate::sanitise::line(text);
        match self {
            Self::Nothing => String::new(),
            Self::Bell => "\x07".to_owned(),
            Self::Nine => format!("\x1b]9;{text}\x1b\\"),
            Self::NinetyNine => format!("\x1b]99;;{text}\x1b\\"),
            Self::SevenHundred => format!("\x1b]777;notify;caliban;{}\x1b\\", text.replace(';', ",")),
        }
    }
}

/// What is in the clipboard: a picture before a text. A picture goes into a file.
pub(super) async fn read_clipboard(machine: Machine) -> Result<Clip, String> {
    if machine.paste_picture.is_empty() && machine.paste_text.is_empty() {
        return Err("no program here reads the clipboard: paste with the key of your terminal".to_owned());
    }
    if let Some(directory) = &machine.pictures {
        for words in &machine.paste_picture {
            let Ok(bytes) = printed(words).await else { continue };
            if bytes.starts_with(b"\x89PNG") {
                let path = keep_picture(directory, &bytes);
                return path.map(Clip::Picture).map_err(|error| format!("{}: {error}", directory.display()));
            }
        }
    }
    for words in &machine.paste_text {
        if let Ok(bytes) = printed(words).await
            && !bytes.is_empty()
        {
            return Ok(Clip::Text(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Err("the clipboard is empty".to_owned())
}

/// What a program prints, when it succeeds in time.
async fn printed(words: &[String]) -> io::Result<Vec<u8>> {
    let (program, args) = words.split_first().ok_or_else(|| io::Error::other("no program"))?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let mut bytes = Vec::new();
    let work = async {
        if let Some(stdout) = child.stdout.take() {
            stdout.take(CLIP_BYTES + 1).read_to_end(&mut bytes).await?;
        }
        child.wait().await
    };
    let status = tokio::time::timeout(COPY_WITHIN, work).await??;
    if !status.success() || u64::try_from(bytes.len()).unwrap_or(u64::MAX) > CLIP_BYTES {
        return Err(io::Error::other("nothing that could be pasted"));
    }
    Ok(bytes)
}

/// Writes a picture into a file of its own; the oldest go when there are many.
fn keep_picture(directory: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    std::fs::create_dir_all(directory)?;
    let mut file = tempfile::Builder::new().prefix("pasted-").suffix(".png").tempfile_in(directory)?;
    file.write_all(bytes)?;
    let (_, path) = file.keep().map_err(|error| error.error)?;
    let mut kept: Vec<_> = std::fs::read_dir(directory)?
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    kept.sort_unstable();
    for (_, old) in kept.iter().rev().skip(PICTURES) {
        let _best_effort = std::fs::remove_file(old);
    }
    Ok(path)
}

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

    fn says(script: &str) -> Vec<ProgramLine> {
        vec![["sh", "-c", script].map(str::to_owned).to_vec()]
    }

    #[tokio::test]
    async fn a_picture_is_pasted_as_a_file_and_else_the_text() {
        let dir = tempfile::tempdir().unwrap();
        let pictures = Some(dir.path().join("pasted"));
        let none = Machine { pictures: pictures.clone(), ..Machine::default() };
        assert!(read_clipboard(none.clone()).await.unwrap_err().contains("key of your terminal"));
        let text =
            Machine { paste_picture: says("exit 1"), paste_text: says("printf 'a\nb'"), ..none.clone() };
        assert_eq!(read_clipboard(text.clone()).await, Ok(Clip::Text("a\nb".to_owned())));
        let picture = Machine { paste_picture: says(r"printf '\211PNG123'"), ..text };
        let Ok(Clip::Picture(path)) = read_clipboard(picture).await else { panic!("no picture") };
        assert_eq!(std::fs::read(path).unwrap(), b"\x89PNG123");
        let empty = Machine { paste_text: says("true"), ..none };
        assert_eq!(read_clipboard(empty).await, Err("the clipboard is empty".to_owned()));
    }

    #[test]
    fn t27_a_notice_has_no_bytes_of_anybody_else() {
        let text = "done\x1b]0;x\x07; rm";
        assert_eq!(NoticeKind::Bell.sequence(text), "\x07");
        for notice in [NoticeKind::Nine, NoticeKind::NinetyNine, NoticeKind::SevenHundred] {
            let sequence = notice.sequence(text);
            let inner = sequence.strip_prefix("\x1b]").unwrap().strip_suffix("\x1b\\").unwrap();
            assert!(!inner.contains(['\x1b', '\x07']), "{inner:?}");
        }
    }

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
