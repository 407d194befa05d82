//! `transcript.jsonl`: the truth of a conversation, on disk.
//!
//! Owns the file: one writer (a thread of its own, the file locked for life), append-only, each record
//! one `write`. A record is acknowledged when it is written, and with [`Durability::Synced`] when it is
//! on the disk. What could be half-written is cut off, at once or at the next opening. Secrets are
//! redacted here, before the bytes reach the file.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Arc, Weak, mpsc},
    time::Duration,
};

use caliban_contract::disk_room::is_full;
use caliban_contract::transcript::{MAX_LINE_BYTES, WholeRecords, io_error, read_records};
pub use caliban_contract::transcript::{TranscriptError, each, read};
use caliban_core::{redact::Redactor, wait::Wait};
use caliban_process::thread_with_room;
use caliban_tools::Workspace;
use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::{
    budget::Purse,
    event::{Event, Record},
    feed::{Feed, FeedEntry},
    secrets,
};

/// The file's name in a session's directory.
pub const FILE_NAME: &str = caliban_contract::records::TRANSCRIPT;
/// How long to wait before a write to a full disk is tried again.
const FULL_DISK_PAUSE: Duration = Duration::from_secs(1);
/// A file that was changed this long after its last record says so was changed by somebody else.
const CHANGED_LATER: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);
/// So much of a torn record is looked at.
const TORN_BYTES: u64 = 4096;

/// How safe a record must be before the append returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Handed to the kernel: survives the end of this process.
    Written,
    /// On the disk: survives a power cut.
    Synced,
}

/// The writing end.
#[derive(Clone)]
pub struct Transcript {
    jobs: mpsc::Sender<WriterJob>,
    feed: Feed,
    path: PathBuf,
    /// Says how long was worked, for each record.
    clock: Option<Purse>,
    /// Says where the next command starts.
    workspace: Weak<Workspace>,
    was_cut: bool,
}

impl std::fmt::Debug for Transcript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transcript").field("path", &self.path).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum WriterJob {
    Append {
        event: Box<Event>,
        worked_ms: Option<u64>,
        stands_in: Option<PathBuf>,
        durability: Durability,
        done: oneshot::Sender<Result<(), TranscriptError>>,
    },
    Close {
        done: oneshot::Sender<()>,
    },
}

impl Transcript {
    /// Starts a new transcript in `directory`, which is made (0700) when it is not there.
    pub fn create(directory: &Path, redactor: Redactor, feed: Feed) -> Result<Self, TranscriptError> {
        let path = directory.join(FILE_NAME);
        make_private_directory(directory).map_err(|source| io_error(&path, source))?;
        let file = open_file(&path, true)?;
        sync_directory(directory).map_err(|source| io_error(&path, source))?;
        let writer =
            TranscriptWriter { file, length: 0, next: 0, redactor, path, stands_in: None, broken: false };
        Ok(Self::start(writer, feed))
    }

    /// Opens an existing one to go on with it: locks it, cuts off a torn tail, hands out its records.
    pub fn resume(
        directory: &Path,
        redactor: Redactor,
        feed: Feed,
    ) -> Result<(Self, Vec<Record>), TranscriptError> {
        let path = directory.join(FILE_NAME);
        let mut file = open_file(&path, false)?;
        let WholeRecords { records, length, torn } = read_records(&mut file, &path)?;
        if let Some(error) = torn {
            tracing::warn!(path = %path.display(), %error, "cut a torn last record");
        }
        let was_cut = was_cut(&mut file, &records, length).map_err(|source| io_error(&path, source))?;
        file.set_len(length).map_err(|source| io_error(&path, source))?;
        file.seek(SeekFrom::Start(length)).map_err(|source| io_error(&path, source))?;
        for record in &records {
            feed.record(record.clone(), false);
        }
        let next = records.last().map_or(0, |record| record.seq + 1);
        let stands_in = standing(&records).map(|standing| standing.here);
        let writer = TranscriptWriter { file, length, next, redactor, path, stands_in, broken: false };
        Ok((Self { was_cut, ..Self::start(writer, feed) }, records))
    }

    /// Whether somebody else seems to have taken the end of it away before it was resumed: steps may have been carried
    /// out that are not in it.
    pub(crate) fn was_cut(&self) -> bool {
        self.was_cut
    }

    fn start(mut writer: TranscriptWriter, feed: Feed) -> Self {
        let (jobs, inbox) = mpsc::channel::<WriterJob>();
        let path = writer.path.clone();
        let transcript =
            Self { jobs, feed: feed.clone(), path, clock: None, workspace: Weak::new(), was_cut: false };
        let work = move || {
            let mut closing = None;
            while let Ok(job) = inbox.recv() {
                match job {
                    WriterJob::Append { event, worked_ms, stands_in, durability, done } => {
                        let result = writer.append(*event, worked_ms, stands_in, durability);
                        if let (true, Err(error @ TranscriptError::Io { .. })) = (writer.broken, &result) {
                            feed.push(FeedEntry::Broken { reason: error.to_string() });
                        }
                        let result = result.map(|record| feed.record(record, true));
                        // The asker may have gone away; the record is there all the same.
                        let _gone = done.send(result);
                    }
                    WriterJob::Close { done } => {
                        closing = Some(done);
                        break;
                    }
                }
            }
            drop((writer, inbox));
            if let Some(done) = closing {
                let _gone = done.send(());
            }
        };
        // Without it the transcript is closed: what is appended fails.
        if let Err(error) = thread_with_room("transcript", work) {
            tracing::error!(%error, "the transcript's thread cannot be started");
        }
        transcript
    }

    /// With each record goes the time that was worked by then, which a resume counts.
    #[must_use]
    pub(crate) fn timed(self, clock: Purse) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// With each record goes where the next command starts, when that has changed: a resumed agent stands there.
    #[must_use]
    pub(crate) fn standing_in(self, workspace: &Arc<Workspace>) -> Self {
        Self { workspace: Arc::downgrade(workspace), ..self }
    }

    /// Appends one event. While the disk is full this waits, and says so in the feed; it goes on by
    /// itself when there is room.
    pub async fn append(&self, event: Event, durability: Durability) -> Result<(), TranscriptError> {
        loop {
            let (done, result) = oneshot::channel();
            let worked_ms = self.clock.as_ref().map(Purse::worked_ms);
            let stands_in = self.workspace.upgrade().map(|workspace| workspace.cwd());
            let event = Box::new(event.clone());
            let job = WriterJob::Append { event, worked_ms, stands_in, durability, done };
            self.jobs.send(job).map_err(|_| TranscriptError::Closed)?;
            match result.await.map_err(|_| TranscriptError::Closed)? {
                Err(TranscriptError::Io { path, source }) if is_full(&source) => {
                    self.feed.push(FeedEntry::Waiting(Wait::DiskFull { path }));
                    tokio::time::sleep(FULL_DISK_PAUSE).await;
                }
                other => return other,
            }
        }
    }

    /// Appends one event without waiting for it: what comes after it in the file may be the first that is acknowledged.
    /// Best effort: an error shows with the next append.
    pub(crate) fn append_soon(&self, event: Event) {
        let (done, _nobody_waits) = oneshot::channel();
        let worked_ms = self.clock.as_ref().map(Purse::worked_ms);
        let durability = Durability::Written;
        let job = WriterJob::Append { event: Box::new(event), worked_ms, stands_in: None, durability, done };
        let _closed = self.jobs.send(job);
    }

    /// Closes the file, and with it the lock, for all who hold this transcript: when this returns, another process can
    /// take the conversation up.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.jobs.send(WriterJob::Close { done }).is_ok() {
            // An error means that it was closed already.
            let _closed = closed.await;
        }
    }

    /// The live log that every appended record goes to.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// How long was worked when the last of these was written.
pub(crate) fn worked_ms(records: &[Record]) -> u64 {
    records.iter().filter_map(|record| record.worked_ms).max().unwrap_or_default()
}

/// Where an agent stood when the last of these was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TranscriptPosition {
    /// The directory in which it works.
    pub(crate) root: PathBuf,
    /// Where its next command would have started.
    pub(crate) here: PathBuf,
}

pub(crate) fn standing(records: &[Record]) -> Option<TranscriptPosition> {
    let mut standing = None;
    for record in records {
        if let Some(root) = own_directory(&record.event) {
            standing = Some(TranscriptPosition { root: root.to_owned(), here: root.to_owned() });
        }
        if let (Some(standing), Some(here)) = (&mut standing, &record.stands_in) {
            standing.here.clone_from(here);
        }
    }
    standing
}

fn own_directory(event: &Event) -> Option<&Path> {
    match event {
        Event::Started(header) => Some(&header.cwd),
        Event::Resumed { cwd, .. } => Some(cwd),
        _ => None,
    }
}

/// Makes a directory and its parents, readable by the owner alone.
pub fn make_private_directory(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

struct TranscriptWriter {
    file: File,
    /// Up to here the file holds whole records.
    length: u64,
    next: u64,
    redactor: Redactor,
    path: PathBuf,
    /// Where the next command starts, by what is written.
    stands_in: Option<PathBuf>,
    /// A sync has failed: what the kernel holds is no longer known.
    broken: bool,
}

impl TranscriptWriter {
    fn append(
        &mut self,
        event: Event,
        worked_ms: Option<u64>,
        stands_in: Option<PathBuf>,
        durability: Durability,
    ) -> Result<Record, TranscriptError> {
        if self.broken {
            return Err(TranscriptError::Closed);
        }
        let known = own_directory(&event).or(self.stands_in.as_deref()).map(Path::to_owned);
        let moved = stands_in.filter(|here| known.as_ref() != Some(here));
        let record =
            Record { seq: self.next, at: Timestamp::now(), worked_ms, stands_in: moved.clone(), event };
        let line = self.line(&record).map_err(|source| io_error(&self.path, source))?;
        if line.len() as u64 >= MAX_LINE_BYTES {
            return Err(TranscriptError::TooLarge(line.len() as u64));
        }
        if let Err(source) = self.file.write_all(&line) {
            self.cut_back();
            return Err(io_error(&self.path, source));
        }
        if durability == Durability::Synced
            && let Err(source) = self.file.sync_data()
        {
            // After a failed sync the kernel may have dropped the pages and call the next sync a success: nothing
            // more is acknowledged. A resume does not find the record either.
            self.cut_back();
            self.broken = true;
            return Err(io_error(&self.path, source));
        }
        self.length += line.len() as u64;
        self.next += 1;
        self.stands_in = moved.or(known);
        Ok(record)
    }

    /// Takes back what a failed write may have left.
    fn cut_back(&mut self) {
        let restored =
            self.file.set_len(self.length).and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
        self.broken = restored.is_err();
    }

    fn line(&self, record: &Record) -> io::Result<Vec<u8>> {
        let mut value = serde_json::to_value(record)?;
        secrets::redact(&mut value, &self.redactor);
        let mut line = serde_json::to_vec(&value)?;
        line.push(b'\n');
        Ok(line)
    }
}

fn open_file(path: &Path, new: bool) -> Result<File, TranscriptError> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    if new {
        options.create_new(true);
    }
    let file = options.open(path).map_err(|source| io_error(path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(TranscriptError::Busy(path.to_owned())),
        Err(std::fs::TryLockError::Error(source)) => Err(io_error(path, source)),
    }
}

/// Whether a file was changed after its last record was written: after the torn one where there is one, which a process that
/// was killed has left and a knife as well.
fn was_cut(file: &mut File, records: &[Record], length: u64) -> io::Result<bool> {
    let Some(last) = records.last() else { return Ok(false) };
    let Ok(changed) = file.metadata()?.modified().map(Timestamp::try_from) else { return Ok(false) };
    file.seek(SeekFrom::Start(length))?;
    let mut torn = Vec::new();
    file.take(TORN_BYTES).read_to_end(&mut torn)?;
    let written = written_at(&torn).unwrap_or(last.at);
    Ok(changed.is_ok_and(|changed| changed.duration_since(written) > CHANGED_LATER))
}

/// When a torn record was written, if so much of it is there.
fn written_at(torn: &[u8]) -> Option<Timestamp> {
    let text = String::from_utf8_lossy(torn);
    let (_, rest) = text.split_once("\"at\":\"")?;
    rest.split_once('"')?.0.parse().ok()
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
