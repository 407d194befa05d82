//! A benchmark's output: rows of cells, and remarks below them.

use super::measure::Cost;

/// The columns of a table of costs.
const COSTS: [&str; 3] = ["wall", "cpu", "peak memory"];

/// A table.
pub(super) struct Table {
    rows: Vec<(String, Vec<String>)>,
    remarks: Vec<String>,
}

impl Table {
    /// With these columns.
    pub(super) fn new(columns: &[&str]) -> Self {
        let head = columns.iter().map(|column| (*column).to_owned()).collect();
        Self { rows: vec![(String::new(), head)], remarks: Vec::new() }
    }

    /// A table of costs.
    pub(super) fn of_costs() -> Self {
        Self::new(&COSTS)
    }

    /// Adds a row.
    pub(super) fn row(&mut self, label: impl Into<String>, cells: impl IntoIterator<Item = String>) {
        self.rows.push((label.into(), cells.into_iter().collect()));
    }

    /// Adds a row of costs, with their ratios to `base`.
    pub(super) fn cost(&mut self, label: impl Into<String>, cost: Cost, base: Option<Cost>) {
        let cell = |shown: String, of: fn(&Cost) -> f64| match base {
            Some(base) => format!("{shown} {:>6}", times(of(&cost) / of(&base).max(1.0))),
            None => format!("{shown} {:>6}", ""),
        };
        self.row(
            label,
            [
                cell(ms(cost.wall_us), |cost| cost.wall_us),
                cell(ms(cost.cpu_us), |cost| cost.cpu_us),
                cell(format!("{:.1} MB", cost.peak_kb / 1_024.0), |cost| cost.peak_kb),
            ],
        );
    }

    /// Adds a line below the table.
    pub(super) fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }

    /// Adds a line about a promised limit.
    pub(super) fn promise(&mut self, what: &str, value: f64, at_most: f64, unit: &str) {
        let verdict = if value <= at_most { "held" } else { "NOT HELD" };
        self.remark(format!("{what}: {value:.1}{unit}, promised at most {at_most}{unit}: {verdict}"));
    }

    /// As text.
    pub(super) fn text(&self, name: &str, what: &str) -> String {
        let wide = |text: &str| text.chars().count();
        let label_width = self.rows.iter().map(|(label, _)| wide(label)).max().unwrap_or(0);
        let columns = self.rows.iter().map(|(_, cells)| cells.len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|n| self.rows.iter().filter_map(|(_, cells)| cells.get(n)).map(|c| wide(c)).max())
            .map(|width| width.unwrap_or(0))
            .collect();
        let mut text = format!("{name}: {what}\n");
        for (label, cells) in &self.rows {
            let mut line = format!("  {label:label_width$}");
            for (cell, width) in cells.iter().zip(&widths) {
                line += &format!("  {cell:>width$}");
            }
            text += line.trim_end();
            text += "\n";
        }
        for remark in &self.remarks {
            text += &format!("  {remark}\n");
        }
        text
    }
}

/// Microseconds as milliseconds.
pub(super) fn ms(us: f64) -> String {
    format!("{:.2} ms", us / 1_000.0)
}

/// A ratio.
pub(super) fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.2}×") } else { format!("{ratio:.0}×") }
}
