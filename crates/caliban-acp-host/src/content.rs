//! Content blocks of the protocol and of our conversations, one from the other.

use caliban_acp::code_fence;
use caliban_acp::v1::{
    ContentBlock, EmbeddedResourceResource, Error, ImageContent, ResourceLink, TextContent,
};
use caliban_core::message::{Block, Message, ResultPart, Role};

/// The longest text of one chunk; longer ones are sent in pieces.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;
/// The pictures that models take.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// What a client says, as a message.
pub(crate) fn message(prompt: &[ContentBlock]) -> Result<Message, Error> {
    let blocks = prompt.iter().map(block).collect::<Result<Vec<_>, _>>()?;
    let is_blank = |block: &Block| matches!(block, Block::Text { text } if text.trim().is_empty());
    if blocks.iter().all(is_blank) {
        return Err(invalid("the prompt is empty"));
    }
    Ok(Message { role: Role::User, blocks })
}

/// What a person has typed of it.
pub(crate) fn typed(prompt: &[ContentBlock]) -> String {
    let texts = prompt.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn block(content: &ContentBlock) -> Result<Block, Error> {
    match content {
        ContentBlock::Text(text) => Ok(Block::Text { text: text.text.clone() }),
        ContentBlock::Image(image) => picture(&image.mime_type, &image.data),
        ContentBlock::ResourceLink(link) => Ok(Block::Text { text: linked(link) }),
        ContentBlock::Resource(resource) => match &resource.resource {
            EmbeddedResourceResource::TextResourceContents(file) => {
                let place = place(&file.uri);
                Ok(Block::Text { text: format!("<resource uri=\"{place}\">\n{}\n</resource>", file.text) })
            }
            EmbeddedResourceResource::BlobResourceContents(blob) => {
                let mime = blob.mime_type.as_deref().unwrap_or_default();
                if PICTURES.contains(&mime) {
                    return picture(mime, &blob.blob);
                }
                Err(invalid(format!("{} is binary ({mime}); only text and pictures can be sent", blob.uri)))
            }
            _ => Err(invalid("a resource of an unknown kind")),
        },
        ContentBlock::Audio(_) => Err(invalid("audio is not supported")),
        _ => Err(invalid("a content block of an unknown kind")),
    }
}

fn picture(mime: &str, data: &str) -> Result<Block, Error> {
    if !PICTURES.contains(&mime) {
        return Err(invalid(format!("{mime} is no picture that a model takes ({})", PICTURES.join(", "))));
    }
    Ok(Block::Image { media_type: mime.to_owned(), data: data.to_owned() })
}

fn linked(link: &ResourceLink) -> String {
    let place = place(&link.uri);
    if place.ends_with(&link.name) { place } else { format!("{} ({place})", link.name) }
}

/// A file's path, where the address is one that can be read off.
fn place(uri: &str) -> String {
    match uri.strip_prefix("file://") {
        Some(path) if path.starts_with('/') => unescaped(path),
        _ => uri.to_owned(),
    }
}

/// `%20` and the like; left as it is when that gives no text.
fn unescaped(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| path.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| path.to_owned())
}

fn invalid(why: impl Into<String>) -> Error {
    Error::invalid_params().data(why.into())
}

/// Blocks of a message that people can see, for a client.
pub(crate) fn shown(blocks: &[Block]) -> Vec<ContentBlock> {
    let mut out = Vec::new();
    for block in blocks {
        match block {
            Block::Text { text } => out.extend(texts(text)),
            Block::Image { media_type, data } => {
                out.push(ContentBlock::Image(ImageContent::new(data.clone(), media_type.clone())));
            }
            Block::Thinking { .. } | Block::ToolUse { .. } | Block::ToolResult { .. } => {}
        }
    }
    out
}

/// Parts of a tool's answer, for a client.
pub(crate) fn result(parts: &[ResultPart], is_output: bool) -> Vec<ContentBlock> {
    let mut out = Vec::new();
    for part in parts {
        match part {
            ResultPart::Text { text } if text.is_empty() => {}
            ResultPart::Text { text } if is_output => out.extend(texts(&code_fence::fenced(text))),
            ResultPart::Text { text } => out.extend(texts(text)),
            ResultPart::Image { media_type, data } => {
                out.push(ContentBlock::Image(ImageContent::new(data.clone(), media_type.clone())));
            }
        }
    }
    out
}

/// A text as blocks of bounded size.
pub(crate) fn texts(text: &str) -> impl Iterator<Item = ContentBlock> + '_ {
    pieces(text).map(|piece| ContentBlock::Text(TextContent::new(piece)))
}

fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let (piece, rest) = text.split_at(boundary(text, CHUNK_BYTES));
        text = rest;
        Some(piece)
    })
}

/// The last place before `limit` bytes where a character ends.
pub(crate) fn boundary(text: &str, limit: usize) -> usize {
    if text.len() <= limit {
        return text.len();
    }
    (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn from_json(value: serde_json::Value) -> Result<Message, Error> {
        let prompt: Vec<ContentBlock> = serde_json::from_value(value).unwrap();
        message(&prompt)
    }

    #[test]
    fn all_kinds_of_prompt_blocks_become_text_or_pictures() {
        let got = from_json(json!([
            {"type": "text", "text": "look at"},
            {"type": "image", "mimeType": "image/png", "data": "aGk="},
            {"type": "resource_link", "name": "a b.rs", "uri": "file:///w/a%20b.rs"},
            {"type": "resource_link", "name": "docs", "uri": "https://example.org/x"},
            {"type": "resource", "resource": {"uri": "file:///w/c.rs", "text": "fn c() {}"}},
        ]));
        let text = |text: &str| Block::Text { text: text.to_owned() };
        let expected = Message {
            role: Role::User,
            blocks: vec![
                text("look at"),
                Block::Image { media_type: "image/png".into(), data: "aGk=".into() },
                text("/w/a b.rs"),
                text("docs (https://example.org/x)"),
                text("<resource uri=\"/w/c.rs\">\nfn c() {}\n</resource>"),
            ],
        };
        assert_eq!(got, Ok(expected));
    }

    #[test]
    fn what_no_model_takes_is_refused_in_words() {
        let why = |value| from_json(value).unwrap_err().data.unwrap_or_default();
        assert_eq!(why(json!([{"type": "text", "text": " \n"}])), "the prompt is empty");
        assert_eq!(why(json!([])), "the prompt is empty");
        assert_eq!(
            why(json!([{"type": "audio", "mimeType": "audio/wav", "data": ""}])),
            "audio is not supported"
        );
        assert_eq!(
            why(json!([{"type": "image", "mimeType": "image/tiff", "data": ""}])),
            "image/tiff is no picture that a model takes (image/png, image/jpeg, image/gif, image/webp)"
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = "é".repeat(CHUNK_BYTES);
        let pieces: Vec<&str> = pieces(&text).collect();
        assert!(pieces.len() > 1 && pieces.iter().all(|piece| piece.len() <= CHUNK_BYTES));
        assert_eq!(pieces.concat(), text);
    }
}
