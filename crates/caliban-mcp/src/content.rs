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
        let mut parts: Vec<ContentPart> = result
            .get("content")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(ContentPart::of)
            .collect();
        if parts.is_empty()
            && let Some(structured) = result.get("structuredContent").filter(|value| !value.is_null())
        {
            parts.push(ContentPart::Text(serde_json::to_string_pretty(structured).unwrap_or_default()));
        }
        let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
        self.parts(parts, is_error)
    }

    /// Texts and pictures in the server's order, within the cap.
    pub(crate) fn parts(&self, parts: Vec<ContentPart>, is_error: bool) -> ToolOutput {
        let texts = parts.iter().filter_map(|part| match part {
            ContentPart::Text(text) => Some(text.as_str()),
            ContentPart::Image(..) => None,
        });
        let all = texts.collect::<Vec<_>>().join("\n");
        let (mut content, mut room, mut images) = (Vec::<ResultPart>::new(), self.chars, 0);
        for part in parts {
            let text = match part {
                ContentPart::Image(media_type, data) if images < IMAGES => {
                    images += 1;
                    content.push(ResultPart::Image { media_type, data });
                    continue;
                }
                ContentPart::Image(..) => "[one more picture left out]".to_owned(),
                // Of what follows a text that is too long nothing more is shown.
                ContentPart::Text(_) if room == 0 => continue,
                ContentPart::Text(text) => {
                    let shown = cap::middle(&text, Cap::Chars(room)).into_owned();
                    room =
                        if shown.len() < text.len() { 0 } else { room.saturating_sub(text.chars().count()) };
                    shown
                }
            };
            match content.last_mut() {
                Some(ResultPart::Text { text: before }) => {
                    before.push('\n');
                    before.push_str(&text);
                }
                _ => content.push(ResultPart::Text { text }),
            }
        }
        let mut output = ToolOutput { is_error, content, ..ToolOutput::default() };
        let is_cut = all.chars().count() > self.chars;
        if is_cut {
            let note = match self.keep(&all) {
                Ok(path) => {
                    let note = format!("[whole output: {}]", path.display());
                    output.whole = Some(path);
                    note
                }
                Err(error) => format!("[the whole output could not be kept: {error}]"),
            };
            match output.content.last_mut() {
                Some(ResultPart::Text { text }) => *text = format!("{}\n{note}", text.trim_end_matches('\n')),
                _ => output.content.push(ResultPart::Text { text: note }),
            }
        }
        output.summary = match (images, all.lines().count()) {
            _ if is_error => all.lines().next().unwrap_or("failed").chars().take(200).collect(),
            (0, 0) => "no output".to_owned(),
            (0, 1) => "1 line".to_owned(),
            (0, lines) => format!("{lines} lines"),
            (images, _) => format!("{images} pictures"),
        };
        output.content.retain(|part| !matches!(part, ResultPart::Text { text } if text.is_empty()));
        if output.content.is_empty() {
            output.content.push(ResultPart::Text { text: "(no output)".to_owned() });
        }
        output
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

/// A part of an answer.
pub(crate) enum ContentPart {
    Text(String),
    Image(String, String),
}

impl ContentPart {
    /// What a resource holds.
    pub(crate) fn of_resource(resource: &Value) -> Self {
        let field = |name: &str| resource.get(name).and_then(Value::as_str);
        let kind = field("mimeType").unwrap_or_default();
        match (field("text"), field("blob")) {
            (Some(text), _) => Self::Text(text.to_owned()),
            (None, Some(data)) if kind.starts_with("image/") => {
                Self::of(&serde_json::json!({"type": "image", "mimeType": kind, "data": data}))
            }
            _ => Self::Text(format!("[{}: binary, left out]", field("uri").unwrap_or_default())),
        }
    }

    /// As text; a picture only says that it is one.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Image(kind, _) => format!("[a picture of type {kind}, left out]"),
        }
    }

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
