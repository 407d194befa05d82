//! A Jupyter notebook as text: its cells and what they printed, without pictures and metadata.

use serde::Deserialize;

#[derive(Deserialize)]
struct Notebook {
    cells: Vec<Cell>,
}

#[derive(Deserialize)]
struct Cell {
    cell_type: String,
    #[serde(default)]
    source: NotebookText,
    #[serde(default)]
    outputs: Vec<CellOutput>,
}

#[derive(Deserialize)]
struct CellOutput {
    /// What a stream said.
    #[serde(default)]
    text: NotebookText,
    /// A result by media type.
    #[serde(default)]
    data: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    ename: Option<String>,
    #[serde(default)]
    evalue: Option<String>,
}

/// Notebooks have texts whole or by lines.
#[derive(Deserialize, Default)]
#[serde(untagged)]
enum NotebookText {
    #[default]
    None,
    Whole(String),
    Lines(Vec<String>),
}

impl NotebookText {
    fn joined(self) -> String {
        match self {
            Self::None => String::new(),
            Self::Whole(text) => text,
            Self::Lines(lines) => lines.concat(),
        }
    }
}

/// The notebook as text; none when the bytes are no notebook.
pub(super) fn text(bytes: &[u8]) -> Option<String> {
    let notebook: Notebook = serde_json::from_slice(bytes).ok()?;
    let mut text = String::new();
    for (index, cell) in notebook.cells.into_iter().enumerate() {
        text.push_str(&format!("[cell {}: {}]\n", index + 1, cell.cell_type));
        push(&mut text, &cell.source.joined());
        for output in cell.outputs {
            text.push_str("[output]\n");
            push(&mut text, &output.text.joined());
            push_data(&mut text, output.data);
            if let Some(name) = output.ename {
                push(&mut text, &format!("{name}: {}", output.evalue.unwrap_or_default()));
            }
        }
    }
    Some(text)
}

/// A result as text; of one without, the kind is said.
fn push_data(text: &mut String, mut data: serde_json::Map<String, serde_json::Value>) {
    let plain =
        data.remove("text/plain").and_then(|plain| serde_json::from_value::<NotebookText>(plain).ok());
    if let Some(plain) = plain {
        push(text, &plain.joined());
    }
    for kind in data.keys().filter(|kind| kind.starts_with("image/")) {
        push(text, &format!("[a picture of type {kind}, left out]"));
    }
}

fn push(text: &mut String, part: &str) {
    if !part.is_empty() {
        text.push_str(part.trim_end_matches('\n'));
        text.push('\n');
    }
}
