//! The files that a person has open in an editor: what is not saved yet counts as what the file has.
//!
//! Read, Edit, Write and apply_patch go by the editor's text where it differs from the disk's, and the editor hears of what
//! they wrote. Search and commands see the disk.

use std::{
    collections::HashMap,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use caliban_rooted::real_path;

use crate::{BoxFuture, limits::FILE_BYTES};

/// How long an editor may take; then the disk counts.
const PATIENCE: Duration = Duration::from_secs(5);

/// An editor.
pub trait Buffers: Send + Sync {
    /// The text of a file as the editor has it; none where it cannot say.
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Option<String>>;

    /// A file has this text now.
    fn write<'a>(&'a self, path: &'a Path, text: &'a str) -> BoxFuture<'a, ()>;
}

/// What is known of the editor's files.
#[derive(Default)]
pub(crate) struct Unsaved {
    editor: Option<Arc<dyn Buffers>>,
    texts: Mutex<HashMap<PathBuf, Vec<u8>>>,
}

impl Unsaved {
    pub(crate) fn new(editor: Option<Arc<dyn Buffers>>) -> Self {
        Self { editor, texts: Mutex::default() }
    }

    /// Asks the editor for a file that is there, before it is read or changed.
    pub(crate) async fn ask(&self, real: &Path) {
        let Some(editor) = &self.editor else { return };
        let is_small = real_path::open_file(real)
            .and_then(|file| file.metadata())
            .is_ok_and(|file| file.is_file() && file.len() <= FILE_BYTES);
        let text = match is_small {
            true => tokio::time::timeout(PATIENCE, editor.read(real)).await.ok().flatten(),
            false => None,
        };
        let text = text.map(String::into_bytes).filter(|text| text.len() as u64 <= FILE_BYTES);
        let differs = |text: &Vec<u8>| content(real).is_ok_and(|disk| disk != *text);
        let mut texts = self.texts();
        match text.filter(differs) {
            Some(text) => drop(texts.insert(real.to_owned(), text)),
            None => drop(texts.remove(real)),
        }
    }

    /// The text that is not saved yet, as it was when the editor was asked.
    pub(crate) fn text(&self, real: &Path) -> Option<Vec<u8>> {
        self.texts().get(real).cloned()
    }

    /// Tells the editor what a file has now.
    pub(crate) async fn tell(&self, real: &Path) {
        let Some(editor) = &self.editor else { return };
        self.texts().remove(real);
        // A file that was deleted, or is no text, is nothing for an editor.
        let Some(text) = content(real).ok().and_then(|text| String::from_utf8(text).ok()) else { return };
        let _late = tokio::time::timeout(PATIENCE, editor.write(real, &text)).await;
    }

    fn texts(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Vec<u8>>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn content(real: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    real_path::open_file(real)?.read_to_end(&mut content)?;
    Ok(content)
}
