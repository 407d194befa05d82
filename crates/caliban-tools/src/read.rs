//! Read: numbered lines of a text file (a notebook and a PDF as text), or a picture. Anything else is refused in words.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, Read as _, Seek},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use caliban_core::{
    access::Access,
    message::{ResultPart, ToolSpec},
};
use caliban_rooted::real_path;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::{
    BuiltinTool, CallContext, ToolOutput, Workspace, blocking, error_text, input,
    judged::CallTarget,
    known_files::{Hash, Lines, SeenPart, Stamp},
    limits::{FILE_BYTES, IMAGE_BYTES, LINE_CHARS, READ_BYTES, READ_LINES, SCAN_BYTES},
};

mod notebook;
pub(crate) mod pdf;

/// Bytes looked at to tell text from anything else.
const SNIFF_BYTES: usize = 8 << 10;
const BLOCK_BYTES: usize = 64 << 10;

pub(crate) struct Read(pub(crate) Arc<Workspace>);

#[derive(Clone, Deserialize)]
struct ReadInput {
    file_path: String,
    #[serde(default, deserialize_with = "input::number")]
    offset: Option<u64>,
    #[serde(default, deserialize_with = "input::number")]
    limit: Option<u64>,
}

impl Read {
    async fn pdf(
        &self,
        target: &CallTarget,
        input: &ReadInput,
        call: &CallContext<'_>,
    ) -> Result<ToolOutput, String> {
        let shown = &input.file_path;
        let real = target.real(shown)?;
        let text = pdf::text(&self.0, shown, &real, call.cancel).await?;
        let mut page = LineRange::of_text(&text, input, call.cancel)?;
        page.note = Some("[the text of a PDF; layout and pictures are lost]");
        page.output(shown)
    }
}

impl BuiltinTool for Read {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Read".into(),
            description: format!(
                "Read a text file (lines come numbered), a PDF, a notebook or a picture (png, jpeg, gif, webp). Up to \
                 {READ_LINES} lines; use offset and limit for more."
            ),
            input_schema: json!({"type": "object", "properties": {
                "file_path": {"type": "string"},
                "offset": {"type": "integer", "description": "first line, from 1"},
                "limit": {"type": "integer", "description": "number of lines"}
            }, "required": ["file_path"]}),
        }
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let input: ReadInput = input::parse("Read", input)?;
        let path = self.0.judge(&input.file_path)?;
        Ok(vec![Access::Read(path)])
    }

    async fn run(&self, input: &Value, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        let input: ReadInput = input::parse("Read", input)?;
        let target = self.0.claim(&input.file_path)?;
        if let Ok(real) = target.real(&input.file_path) {
            self.0.unsaved.ask(&real).await;
        }
        let workspace = self.0.clone();
        let (theirs, wanted) = (target.clone(), input.clone());
        let work = move |cancel: &CancellationToken| read_now(&workspace, &theirs, &wanted, cancel);
        match blocking::look(call.cancel, work).await?? {
            FileContent::Output(output) => Ok(output),
            FileContent::Pdf => self.pdf(&target, &input, call).await,
        }
    }
}

/// What a file is.
enum FileContent {
    /// Something that can be shown.
    Output(ToolOutput),
    /// A document whose text takes longer.
    Pdf,
}

fn read_now(
    workspace: &Workspace,
    target: &CallTarget,
    input: &ReadInput,
    cancel: &CancellationToken,
) -> Result<FileContent, String> {
    let shown = &input.file_path;
    let path = &target.path;
    let real = target.real(shown)?;
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => error_text::missing_here(workspace, shown, path),
        _ => format!("{shown}: {}", error_text::reason(&error)),
    };
    let mut file = real_path::open_file(&real).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if meta.is_dir() {
        return Err(format!("{shown} is a directory; use Glob with `{shown}/*`, or Bash with ls"));
    }
    if !meta.is_file() {
        return Err(format!("{shown} is a pipe, a socket or a device, not a file"));
    }
    if let Some(text) = workspace.unsaved.text(&real) {
        let mut page = LineRange::read(&mut &*text, text.len() as u64, input.offset, input.limit, cancel)
            .map_err(failed)?;
        page.note = Some("[as it is in the user's editor; it is not saved yet]");
        workspace.ledger.saw(&real, Stamp::new(&meta, page.content), page.seen());
        return page.output(shown).map(FileContent::Output);
    }
    let start = sniff(&mut file).map_err(failed)?;
    match kind(&start) {
        FileKind::Text => {}
        FileKind::Pdf => return Ok(FileContent::Pdf),
        FileKind::Picture(media_type) => {
            let (output, content) = picture(&mut file, shown, media_type).map_err(failed)??;
            workspace.ledger.saw(&real, Stamp::new(&meta, Some(content)), SeenPart::Whole);
            return Ok(FileContent::Output(output));
        }
        FileKind::Utf16 => {
            return Err(format!("{shown} is UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8"));
        }
        FileKind::Binary => {
            return Err(format!("{shown} is a binary file ({})", error_text::bytes(meta.len())));
        }
    }
    // Who names lines wants those of the file.
    let is_notebook = real.extension().is_some_and(|extension| extension == "ipynb");
    if is_notebook && input.offset.or(input.limit).is_none() && meta.len() <= FILE_BYTES {
        let mut bytes = Vec::new();
        (&mut file).take(FILE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        if let Some(text) = notebook::text(&bytes) {
            let mut page = LineRange::of_text(&text, input, cancel)?;
            page.note = Some(
                "[a notebook as text; with offset or limit you see its JSON, which Edit and Write change]",
            );
            let seen = SeenPart::Lines { lines: Lines::default(), total: None };
            workspace.ledger.saw(&real, Stamp::new(&meta, Some(Sha256::digest(&bytes).into())), seen);
            return page.output(shown).map(FileContent::Output);
        }
        file.rewind().map_err(failed)?;
    }
    let page = LineRange::read(&mut file, meta.len(), input.offset, input.limit, cancel).map_err(failed)?;
    workspace.ledger.saw(&real, Stamp::new(&meta, page.content), page.seen());
    page.output(shown).map(FileContent::Output)
}

enum FileKind {
    Text,
    Pdf,
    Picture(&'static str),
    Utf16,
    Binary,
}

fn kind(start: &[u8]) -> FileKind {
    match start {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => FileKind::Picture("image/png"),
        [0xff, 0xd8, 0xff, ..] => FileKind::Picture("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => FileKind::Picture("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => FileKind::Picture("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => FileKind::Pdf,
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => FileKind::Utf16,
        _ if memchr::memchr(0, start).is_some() => FileKind::Binary,
        _ => FileKind::Text,
    }
}

fn sniff(file: &mut File) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(SNIFF_BYTES);
    file.take(SNIFF_BYTES as u64).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(start)
}

fn picture(file: &mut File, shown: &str, media_type: &str) -> io::Result<Result<(ToolOutput, Hash), String>> {
    let mut bytes = Vec::new();
    file.take(IMAGE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > IMAGE_BYTES {
        let limit = error_text::bytes(IMAGE_BYTES);
        return Ok(Err(format!(
            "{shown} is a picture of more than {limit}; make a smaller copy and read that"
        )));
    }
    let content = Sha256::digest(&bytes).into();
    let output = ToolOutput {
        content: vec![ResultPart::Image { media_type: media_type.into(), data: STANDARD.encode(&bytes) }],
        summary: format!("{shown}: picture, {}", error_text::bytes(bytes.len() as u64)),
        ..ToolOutput::default()
    };
    Ok(Ok((output, content)))
}

/// The lines of one range and what else was seen on the way.
#[derive(Default)]
struct LineRange {
    text: String,
    first: u64,
    taken: u64,
    /// Lines seen so far; all of them when `complete`.
    lines: u64,
    complete: bool,
    invalid: bool,
    crlf: bool,
    full: bool,
    /// Those that are shown as they are.
    whole: Lines,
    content: Option<Hash>,
    /// What else is to be said.
    note: Option<&'static str>,
}

impl LineRange {
    /// Lines of a text that a file was made into.
    fn of_text(text: &str, input: &ReadInput, cancel: &CancellationToken) -> Result<Self, String> {
        let size = text.len() as u64;
        Self::read(&mut text.as_bytes(), size, input.offset, input.limit, cancel)
            .map_err(|error| error_text::reason(&error))
    }

    /// One pass over the file; nothing but the lines asked for is held. A file that the ledger can know by
    /// content is read to its end, a larger one as far as needed.
    fn read(
        file: &mut impl io::Read,
        size: u64,
        offset: Option<u64>,
        limit: Option<u64>,
        cancel: &CancellationToken,
    ) -> io::Result<Self> {
        let mut page = Self { first: offset.unwrap_or(1).max(1), ..Self::default() };
        let limit = limit.unwrap_or(READ_LINES).clamp(1, READ_LINES);
        let mut hasher = (size <= FILE_BYTES).then(Sha256::new);
        let mut line = LineReader::default();
        let mut scanned = 0;
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            let got = match file.read(&mut block) {
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if got == 0 {
                page.complete = true;
                break;
            }
            scanned += got as u64;
            if let Some(hasher) = &mut hasher {
                hasher.update(&block[..got]);
            }
            // The file grew past what the ledger hashes while it was read.
            if scanned > FILE_BYTES {
                hasher = None;
            }
            page.take_block(&block[..got], &mut line, limit);
            if cancel.is_cancelled() {
                return Err(io::Error::other(blocking::INTERRUPTED));
            }
            if (page.done(limit) && hasher.is_none()) || scanned > SCAN_BYTES {
                break;
            }
        }
        if page.complete && line.begun {
            page.end_line(&mut line, limit);
        }
        page.content = hasher.map(|hasher| hasher.finalize().into());
        Ok(page)
    }

    fn done(&self, limit: u64) -> bool {
        self.full || self.taken >= limit
    }

    fn take_block(&mut self, block: &[u8], line: &mut LineReader, limit: u64) {
        let mut rest = block;
        while let Some(at) = memchr::memchr(b'\n', rest) {
            line.push(&rest[..at], self.wants_next(limit));
            self.end_line(line, limit);
            rest = &rest[at + 1..];
        }
        if !rest.is_empty() {
            line.push(rest, self.wants_next(limit));
        }
    }

    fn wants_next(&self, limit: u64) -> bool {
        self.lines + 1 >= self.first && !self.done(limit)
    }

    fn end_line(&mut self, line: &mut LineReader, limit: u64) {
        let wanted = self.wants_next(limit);
        self.lines += 1;
        if wanted {
            let ShownLine { text, invalid, crlf, cut } = line.shown(self.lines == 1);
            if !self.text.is_empty() && self.text.len() + text.len() + 8 > READ_BYTES {
                self.full = true;
            } else {
                self.invalid |= invalid;
                self.crlf |= crlf;
                self.taken += 1;
                if !invalid && !cut {
                    self.whole.add(self.lines);
                }
                self.text.push_str(&format!("{:>6}\t{text}\n", self.lines));
            }
        }
        line.clear();
    }

    fn seen(&self) -> SeenPart {
        SeenPart::Lines { lines: self.whole.clone(), total: self.complete.then_some(self.lines) }
    }

    fn output(self, shown: &str) -> Result<ToolOutput, String> {
        if self.complete && self.lines == 0 {
            return Ok(ToolOutput::text("[the file is empty]", format!("{shown}: empty")));
        }
        if self.taken == 0 {
            let lines = error_text::counted(self.lines, "line", "lines");
            return Err(format!("{shown} has {lines}; offset {} is beyond its end", self.first));
        }
        let last = self.first + self.taken - 1;
        let mut text = self.text;
        let more = !self.complete || last < self.lines;
        if more {
            let total =
                if self.complete { format!(" of {}", self.lines) } else { " of a large file".to_owned() };
            text.push_str(&format!(
                "[lines {}-{last}{total}; continue with offset {}]\n",
                self.first,
                last + 1
            ));
        }
        if self.crlf {
            text.push_str("[lines end with CRLF; Edit and Write keep them so]\n");
        }
        if self.invalid {
            text.push_str("[not all of it is valid UTF-8; such bytes are shown as \u{fffd}]\n");
        }
        text.extend(self.note.into_iter().flat_map(|note| [note, "\n"]));
        let lines = error_text::counted(self.taken, "line", "lines");
        Ok(ToolOutput::text(text, format!("{shown}: {lines}")))
    }
}

/// The line being read, up to what of it can be shown.
#[derive(Default)]
struct LineReader {
    bytes: Vec<u8>,
    left_out: u64,
    begun: bool,
    last: u8,
}

/// A line as it is shown.
struct ShownLine {
    text: String,
    /// Whether bytes of it are no UTF-8.
    invalid: bool,
    /// Whether it ended with CR.
    crlf: bool,
    /// Whether a part of it is not shown.
    cut: bool,
}

/// No character has more bytes than this.
const CHAR_BYTES: usize = 4;

impl LineReader {
    fn push(&mut self, bytes: &[u8], wanted: bool) {
        self.begun = true;
        if !wanted {
            return;
        }
        if let Some(last) = bytes.last() {
            self.last = *last;
        }
        let room = (LINE_CHARS * CHAR_BYTES).saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..room]);
        self.left_out += (bytes.len() - room) as u64;
    }

    fn shown(&self, first: bool) -> ShownLine {
        let crlf = self.last == b'\r';
        let mut bytes = &self.bytes[..];
        if crlf && self.left_out == 0 {
            bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        }
        if first {
            bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        let cut = text.char_indices().nth(LINE_CHARS).map(|(at, _)| at);
        // The room is more than the characters that are shown, so a character that it cut is not shown.
        let Some(at) = cut.or((self.left_out > 0).then_some(text.len())) else {
            let invalid = matches!(text, Cow::Owned(_));
            return ShownLine { text: text.into_owned(), invalid, crlf, cut: false };
        };
        let shown = &text[..at];
        let invalid = matches!(text, Cow::Owned(_)) && shown.contains(char::REPLACEMENT_CHARACTER);
        let left = self.left_out + bytes.len().saturating_sub(at) as u64;
        let text = format!("{shown}… [{left} bytes of this line left out]");
        ShownLine { text, invalid, crlf, cut: true }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        (self.left_out, self.begun, self.last) = (0, false, 0);
    }
}
