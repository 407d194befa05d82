//! A server's answer as what the model gets: within the cap, the whole in a file.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use caliban_core::{
    cap::{self, Cap},
    message::ResultPart,
};
use caliban_tools::{Redact, ToolOutput, limits::IMAGE_BYTES};
use serde_json::Value;

/// Pictures of one answer that are passed on.
const IMAGES: usize = 8;

/// Where whole outputs are kept, and how much the model gets: the same values as the workspace's.
pub struct Outputs {
    dir: PathBuf,
    chars: usize,
    redact: Option<Redact>,
    next: AtomicU64,
}

impl Outputs {
    /// Files in `dir`, which is made when it is first needed; `chars` for the model.
    pub fn new(dir: PathBuf, chars: usize, redact: Option<Redact>) -> Self {
        Self { dir, chars, redact, next: AtomicU64::new(1) }
    }

    /// The result of `tools/call`.
    pub(crate) fn output(&self, result: &Value) -> ToolOutput {
        let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
        let mut texts = Vec::new();
        let mut images = Vec::new();
        for part in result.get("content").and_then(Value::as_array).into_iter().flatten() {
            match Part::of(part) {
                Part::Text(text) => texts.push(text),
                Part::Image(..) if images.len() >= IMAGES => {
                    texts.push("[one more picture left out]".to_owned())
                }
                Part::Image(media_type, data) => images.push(ResultPart::Image { media_type, data }),
            }
        }
        if texts.is_empty()
            && images.is_empty()
            && let Some(structured) = result.get("structuredContent").filter(|value| !value.is_null())
        {
            texts.push(serde_json::to_string_pretty(structured).unwrap_or_default());
        }
        let text = texts.join("\n");
        let mut output = self.capped(&text);
        output.is_error = is_error;
        let lines = text.lines().count();
        output.summary = match (images.len(), lines) {
            (0, 0) => "no output".to_owned(),
            (0, 1) => "1 line".to_owned(),
            (0, lines) => format!("{lines} lines"),
            (images, _) => format!("{images} pictures"),
        };
        if output.is_error {
            output.summary = text.lines().next().unwrap_or("failed").chars().take(200).collect();
        }
        output.content.extend(images);
        if output.content.is_empty() {
            output.content.push(ResultPart::Text { text: "(no output)".to_owned() });
        }
        output
    }

    fn capped(&self, text: &str) -> ToolOutput {
        if text.is_empty() {
            return ToolOutput::default();
        }
        let shown = cap::middle(text, Cap::Chars(self.chars));
        if shown.len() == text.len() {
            return ToolOutput {
                content: vec![ResultPart::Text { text: text.to_owned() }],
                ..ToolOutput::default()
            };
        }
        let (note, whole) = match self.keep(text) {
            Ok(path) => (format!("[whole output: {}]", path.display()), Some(path)),
            Err(error) => (format!("[the whole output could not be kept: {error}]"), None),
        };
        ToolOutput {
            content: vec![ResultPart::Text { text: format!("{}\n{note}", shown.trim_end_matches('\n')) }],
            whole,
            ..ToolOutput::default()
        }
    }

    fn keep(&self, text: &str) -> io::Result<PathBuf> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        loop {
            let path = self.dir.join(format!("mcp-{}.txt", self.next.fetch_add(1, Ordering::Relaxed)));
            match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(mut file) => {
                    match &self.redact {
                        Some(redact) => file.write_all(redact(text).as_bytes())?,
                        None => file.write_all(text.as_bytes())?,
                    }
                    return Ok(path);
                }
                // Of an earlier run of the same session.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

enum Part {
    Text(String),
    Image(String, String),
}

impl Part {
    fn of(part: &Value) -> Self {
        let text = |pointer: &str| part.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        match text("/type") {
            "text" => Self::Text(text("/text").to_owned()),
            "image" => {
                let (kind, data) = (text("/mimeType"), text("/data"));
                let known = matches!(kind, "image/png" | "image/jpeg" | "image/gif" | "image/webp");
                // Three bytes are four characters.
                let bytes = data.len() as u64 / 4 * 3;
                if known && bytes <= IMAGE_BYTES && !data.is_empty() {
                    Self::Image(kind.to_owned(), data.to_owned())
                } else {
                    Self::Text(format!("[a picture of type {kind}, {bytes} bytes, left out]"))
                }
            }
            "resource" => match part.pointer("/resource/text").and_then(Value::as_str) {
                Some(content) => Self::Text(format!("[{}]\n{content}", text("/resource/uri"))),
                None => Self::Text(format!("[{}: binary, left out]", text("/resource/uri"))),
            },
            "resource_link" => Self::Text(format!("[{}] {}", text("/uri"), text("/name"))),
            kind => Self::Text(format!("[a part of type `{kind}`, left out]")),
        }
    }
}
