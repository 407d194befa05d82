//! The search itself: files in parallel, everything bounded, cancelled within one block of one file.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use caliban_rooted::real_path;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use ignore::{WalkState, types::Types};

use crate::{
    limits::{GREP_BYTES, GREP_HEAP, WALK_ENTRIES},
    walk::{self, Bounds, Ignored, PathGlob},
    workspace::OffLimits,
};

/// Characters of a matching line that are kept.
const LINE_CHARS: usize = 500;
/// Files searched at one time.
const THREADS: usize = 4;

/// What to search for and where.
pub(super) struct Search {
    pub(super) base: PathBuf,
    pub(super) matcher: RegexMatcher,
    pub(super) glob: Option<PathGlob>,
    pub(super) off_limits: Option<OffLimits>,
    pub(super) types: Option<Types>,
    pub(super) multiline: bool,
    /// Whether the lines are kept, or only counted.
    pub(super) lines: bool,
    /// Whether the first match of a file is enough.
    pub(super) first_only: bool,
    pub(super) before: usize,
    pub(super) after: usize,
}

#[derive(Default)]
pub(super) struct Hits {
    pub(super) files: Vec<FileHits>,
    /// Files with matches that are not searched; looked for when there are no others.
    pub(super) ignored: Vec<FileHits>,
    pub(super) unreadable: u64,
    pub(super) stopped: bool,
}

pub(super) struct FileHits {
    /// Relative to the base; empty when the base is the file.
    pub(super) path: PathBuf,
    pub(super) time: SystemTime,
    /// Matching lines (or matches that span lines).
    pub(super) count: u64,
    pub(super) lines: Vec<HitLine>,
}

pub(super) enum HitLine {
    Match(Option<u64>, String),
    Context(Option<u64>, String),
    Break,
}

impl HitLine {
    pub(super) fn shown(&self, path: &str, numbers: bool) -> String {
        match self {
            Self::Match(Some(number), text) if numbers => format!("{path}:{number}:{text}"),
            Self::Context(Some(number), text) if numbers => format!("{path}-{number}-{text}"),
            Self::Match(_, text) => format!("{path}:{text}"),
            Self::Context(_, text) => format!("{path}-{text}"),
            Self::Break => "--".into(),
        }
    }
}

/// What the threads of one search share.
#[derive(Default)]
struct SearchShared {
    files: Mutex<Vec<FileHits>>,
    unreadable: AtomicU64,
    entries: AtomicUsize,
    bytes: AtomicUsize,
    stopped: AtomicBool,
}

impl Search {
    pub(super) fn run(&self, ignored: Ignored, bounds: Bounds<'_>) -> Hits {
        let shared = SearchShared::default();
        let mut builder = walk::walk(&self.base, ignored);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        builder.threads(threads);
        if let Some(types) = &self.types {
            builder.types(types.clone());
        }
        builder.build_parallel().run(|| {
            let mut searcher = self.searcher();
            let shared = &shared;
            Box::new(move |entry| {
                if bounds.cancelled() || shared.stopped.load(Ordering::Relaxed) {
                    return WalkState::Quit;
                }
                let entries = shared.entries.fetch_add(1, Ordering::Relaxed);
                if entries >= WALK_ENTRIES || bounds.out_of_time() {
                    shared.stopped.store(true, Ordering::Relaxed);
                    return WalkState::Quit;
                }
                match entry {
                    Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_file()) => {
                        self.file(&mut searcher, entry.path(), shared, bounds);
                    }
                    Ok(_) => {}
                    Err(_) => {
                        shared.unreadable.fetch_add(1, Ordering::Relaxed);
                    }
                }
                WalkState::Continue
            })
        });
        let mut files = shared.files.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut unreadable = shared.unreadable.into_inner();
        if let Some(is_off_limits) = &self.off_limits {
            // Asked only of files with matches: a rule may follow links, and most files have none.
            let all = files.len();
            files.retain(|file| !is_off_limits(&self.base.join(&file.path)));
            unreadable += (all - files.len()) as u64;
        }
        Hits { files, ignored: Vec::new(), unreadable, stopped: shared.stopped.into_inner() }
    }

    fn searcher(&self) -> Searcher {
        let mut builder = SearcherBuilder::new();
        builder
            .binary_detection(BinaryDetection::quit(0))
            .line_number(self.lines)
            .multi_line(self.multiline)
            .heap_limit(Some(GREP_HEAP));
        if self.lines {
            builder.before_context(self.before).after_context(self.after);
        }
        builder.build()
    }

    fn file(&self, searcher: &mut Searcher, path: &Path, shared: &SearchShared, bounds: Bounds<'_>) {
        let relative = path.strip_prefix(&self.base).unwrap_or(path);
        // A file that was named itself is searched whatever it is called.
        let named = relative.as_os_str().is_empty();
        if !named && self.glob.as_ref().is_some_and(|glob| !glob.matches(relative)) {
            return;
        }
        let mut collector = Collector { search: self, shared, count: 0, lines: Vec::new(), binary: false };
        let searched = real_path::open_file(path).and_then(|file| {
            let time = file.metadata()?.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            searcher.search_reader(&self.matcher, Interruptible { file, bounds }, &mut collector)?;
            Ok(time)
        });
        match searched {
            Ok(time) if collector.count > 0 && !collector.binary => {
                let hits = FileHits {
                    path: relative.to_owned(),
                    time,
                    count: collector.count,
                    lines: collector.lines,
                };
                shared.files.lock().unwrap_or_else(PoisonError::into_inner).push(hits);
            }
            Ok(_) => {}
            Err(_) => {
                shared.unreadable.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A file that stops being readable when the search must end.
struct Interruptible<'a> {
    file: File,
    bounds: Bounds<'a>,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bounds.cancelled() || self.bounds.out_of_time() {
            return Err(io::Error::other("interrupted"));
        }
        self.file.read(buffer)
    }
}

struct Collector<'a> {
    search: &'a Search,
    shared: &'a SearchShared,
    count: u64,
    lines: Vec<HitLine>,
    binary: bool,
}

impl Collector<'_> {
    /// Keeps a line; false when there are too many.
    fn keep(&mut self, line: HitLine, length: usize) -> bool {
        self.lines.push(line);
        let kept = self.shared.bytes.fetch_add(length + size_of::<HitLine>(), Ordering::Relaxed);
        if kept > GREP_BYTES {
            self.shared.stopped.store(true, Ordering::Relaxed);
        }
        kept <= GREP_BYTES
    }
}

impl Sink for Collector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.count += 1;
        if !self.search.lines {
            return Ok(!self.search.first_only);
        }
        let mut number = found.line_number();
        for line in found.lines() {
            let text = cut(line);
            let length = text.len();
            if !self.keep(HitLine::Match(number, text), length) {
                return Ok(false);
            }
            number = number.map(|number| number + 1);
        }
        Ok(true)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        let text = cut(context.bytes());
        let length = text.len();
        Ok(self.keep(HitLine::Context(context.line_number(), text), length))
    }

    fn context_break(&mut self, _searcher: &Searcher) -> Result<bool, io::Error> {
        Ok(self.keep(HitLine::Break, 0))
    }

    fn binary_data(&mut self, _searcher: &Searcher, _offset: u64) -> Result<bool, io::Error> {
        self.binary = true;
        Ok(false)
    }
}

/// A line as it is shown: without its end, within the cap, whatever its bytes.
fn cut(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // Four bytes are the most that a character has: more than that need not be decoded.
    let text = String::from_utf8_lossy(&line[..line.len().min(LINE_CHARS * 4 + 4)]);
    match text.char_indices().nth(LINE_CHARS) {
        Some((at, _)) => format!("{}… [line cut]", &text[..at]),
        None => text.into_owned(),
    }
}
