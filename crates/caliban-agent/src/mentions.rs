//! `@path` in what a person says: the file goes along, as text or as a picture.
//!
//! Only what the rules let the agent read without a question; everything else stays a word. Whoever calls says which text
//! a person has written: what comes through a pipe may name files that nobody meant.

use std::{
    ffi::OsString,
    io::Read as _,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use caliban_core::{access::Access, message::Block};
use caliban_permissions::{Policy, Verdict};
use caliban_rooted::{FileType, real_path, tree};
use caliban_tools::{
    Workspace,
    limits::{IMAGE_BYTES, READ_BYTES},
};

use caliban_contract::mentions::{FILES, named, path_of};

use crate::agent::Kit;

/// Names of a directory that are listed.
const ENTRIES: usize = 200;

/// What a block begins with that brings a file or a directory along as text.
const BEGINS: [&str; 2] = ["<file path=\"", "<directory path=\""];

/// Brings the files along that a person's words name. Cheap to clone.
#[derive(Clone)]
pub struct Mentions {
    workspace: Arc<Workspace>,
    policy: Arc<RwLock<Policy>>,
}

/// How many blocks at the beginning of a message were brought along as text: they are for the model, not for people.
pub(crate) fn leading(blocks: &[Block]) -> usize {
    let is_brought = |block: &&Block| match block {
        Block::Text { text } => BEGINS.iter().any(|begin| text.starts_with(begin)),
        _ => false,
    };
    let count = blocks.iter().take_while(is_brought).count();
    // What is all that was said, somebody has typed.
    if count < blocks.len() { count } else { 0 }
}

impl Kit {
    /// For those who take words in.
    pub fn mentions(&self) -> Mentions {
        Mentions { workspace: self.workspace.clone(), policy: self.policy.clone() }
    }
}

impl Mentions {
    /// What goes along with these words.
    pub fn along(&self, words: &str) -> Vec<Block> {
        self.bring(named(words))
    }

    /// The files with these names.
    #[expect(
        clippy::disallowed_methods,
        reason = "what it leads to is judged, too, and opened without a link on the way"
    )]
    pub fn bring<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut seen = Vec::new();
        for name in names {
            let path = path_of(&self.workspace.cwd(), name);
            if seen.contains(&path) || seen.len() >= FILES {
                continue;
            }
            // What is opened is what was judged: a link that comes into its path later is not followed.
            let Ok(real) = std::fs::canonicalize(&path) else { continue };
            if !self.may_read(&path) || !self.may_read(&real) {
                continue;
            }
            if let Some(block) = brought(&path, &real) {
                seen.push(path);
                blocks.push(block);
            }
        }
        blocks
    }

    fn may_read(&self, path: &Path) -> bool {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        matches!(policy.decide("Read", &[Access::Read(path.to_owned())]), Verdict::Allow { .. })
    }
}

fn brought(path: &Path, real: &Path) -> Option<Block> {
    // A pipe does not make us wait.
    let file = real_path::open_file(real).ok()?;
    let metadata = file.metadata().ok()?;
    let shown = path.display();
    if metadata.is_dir() {
        let entries = tree::entries(&file).ok()?;
        let name = |(name, kind): &(OsString, FileType)| {
            let end = if *kind == FileType::Directory { "/" } else { "" };
            format!("{}{end}", name.to_string_lossy())
        };
        let names: Vec<String> = entries.iter().take(ENTRIES).map(name).collect();
        return Some(Block::Text {
            text: format!("<directory path=\"{shown}\">\n{}\n</directory>", names.join("\n")),
        });
    }
    if !metadata.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let media_type = match extension.to_ascii_lowercase().as_str() {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "gif" => Some("image/gif"),
        "webp" => Some("image/webp"),
        _ => None,
    };
    if let Some(media_type) = media_type {
        if metadata.len() > IMAGE_BYTES {
            let size = format!(
                "{} MB, and a picture has at most {} MB",
                metadata.len().div_ceil(1 << 20),
                IMAGE_BYTES >> 20
            );
            let hint = "ask for a smaller copy";
            return Some(Block::Text {
                text: format!("<file path=\"{shown}\">\n[left out: it has {size}; {hint}]\n</file>"),
            });
        }
        file.take(IMAGE_BYTES).read_to_end(&mut bytes).ok()?;
        return Some(Block::Image { media_type: media_type.to_owned(), data: STANDARD.encode(bytes) });
    }
    file.take(READ_BYTES as u64).read_to_end(&mut bytes).ok()?;
    if bytes.contains(&0) {
        return None;
    }
    let text = String::from_utf8_lossy(&bytes);
    let cut = if metadata.len() > READ_BYTES as u64 { "\n[cut; read the file for the rest]" } else { "" };
    Some(Block::Text { text: format!("<file path=\"{shown}\">\n{}{cut}\n</file>", text.trim_end()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_that_is_too_large_is_left_out_in_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large.png");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(IMAGE_BYTES).unwrap();
        let brought = |path: &Path| brought(path, &std::fs::canonicalize(path).unwrap());
        assert!(matches!(brought(&path), Some(Block::Image { .. })));
        file.set_len(IMAGE_BYTES + 1).unwrap();
        let Some(Block::Text { text }) = brought(&path) else { panic!("no text") };
        assert!(text.contains("[left out: it has 21 MB, and a picture has at most 20 MB"), "{text}");
    }
}
