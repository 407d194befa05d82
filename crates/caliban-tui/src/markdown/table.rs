//! Tables: columns side by side where they fit, one record below the other where they do not.

use ratatui::text::Span;

use crate::{
    text::width,
    theme::{TextRole, Theme},
};

/// Rows behind these are counted, not shown.
const ROWS: usize = 200;
/// Between two columns.
const GAP: usize = 2;

type CellWords = Vec<Span<'static>>;

/// A table that is being read.
#[derive(Default)]
pub(super) struct MarkdownTable {
    rows: Vec<Vec<CellWords>>,
    open: Vec<CellWords>,
}

impl MarkdownTable {
    pub(super) fn cell(&mut self, words: CellWords) {
        self.open.push(words);
    }

    pub(super) fn end_row(&mut self) {
        let row = std::mem::take(&mut self.open);
        self.rows.push(row);
    }

    /// Its lines, for so many columns of the screen.
    pub(super) fn lines(mut self, room: usize, theme: Theme) -> Vec<CellWords> {
        let hidden = self.rows.len().saturating_sub(ROWS + 1);
        self.rows.truncate(ROWS + 1);
        let count = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let widths: Vec<usize> = (0..count)
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0)
            })
            .collect();
        let all = widths.iter().sum::<usize>() + GAP * count.saturating_sub(1);
        let mut lines = if all <= room { self.grid(&widths, theme) } else { self.records(theme) };
        if hidden > 0 {
            lines.push(vec![Span::styled(format!("… {hidden} more rows"), theme.style(TextRole::Dim))]);
        }
        lines
    }

    fn grid(self, widths: &[usize], theme: Theme) -> Vec<CellWords> {
        let mut lines = Vec::new();
        for (number, row) in self.rows.into_iter().enumerate() {
            let mut line: CellWords = Vec::new();
            let last = row.len().saturating_sub(1);
            for (column, cell) in row.into_iter().enumerate() {
                let fill = widths.get(column).copied().unwrap_or_default().saturating_sub(width(&cell)) + GAP;
                line.extend(cell.into_iter().map(|span| strong(span, number == 0, theme)));
                if column < last {
                    line.push(Span::raw(" ".repeat(fill)));
                }
            }
            lines.push(line);
            if number == 0 {
                let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                lines.push(vec![Span::styled(rule.join(&" ".repeat(GAP)), theme.style(TextRole::Dim))]);
            }
        }
        lines
    }

    fn records(self, theme: Theme) -> Vec<CellWords> {
        let mut rows = self.rows.into_iter();
        let names = rows.next().unwrap_or_default();
        let mut lines = Vec::new();
        for row in rows {
            if !lines.is_empty() {
                lines.push(Vec::new());
            }
            for (column, cell) in row.into_iter().enumerate() {
                let mut line: CellWords = names.get(column).cloned().unwrap_or_default();
                line = line.into_iter().map(|span| strong(span, true, theme)).collect();
                line.push(Span::styled(": ", theme.style(TextRole::Dim)));
                line.extend(cell);
                lines.push(line);
            }
        }
        lines
    }
}

fn strong(span: Span<'static>, is_head: bool, theme: Theme) -> Span<'static> {
    if is_head { span.patch_style(theme.style(TextRole::Strong)) } else { span }
}
