//! `caliban agents list`

use std::{io::Write, time::Duration};

use anstyle::{AnsiColor, Style};
use caliban_core::{inert, lifecycle::State};
use caliban_supervisor::protocol::AgentRow;

use super::{
    Fleet, json_line,
    row::{self, Shown},
    worded,
};
use crate::{
    cli::fleet::ListArgs,
    report::{Code, Failure},
};

/// How much of "what it is doing" is shown where the width is not known.
const DOING_CHARS: usize = 80;
/// The least of it, however narrow the terminal.
const DOING_LEAST: usize = 20;
/// How much of a label is shown.
const LABEL_CHARS: usize = 20;

const NEEDS_YOU: Style = AnsiColor::Yellow.on_default().bold();
const DIM: Style = Style::new().dimmed();

pub(super) async fn list(fleet: &Fleet<'_>, args: &ListArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    if args.watch {
        return super::watch::watch(fleet, args.json, out).await;
    }
    let rows = fleet.client().await?.list().await.map_err(worded)?;
    let now = row::now_ms();
    if args.json {
        let shown: Vec<Shown<'_>> = rows.iter().map(|row| Shown::new(row, now)).collect();
        json_line(&shown, out)?;
        return Ok(Code::Done);
    }
    for line in table(&rows, now, width()) {
        writeln!(out, "{line}")?;
    }
    Ok(Code::Done)
}

/// The columns of the terminal that stdout is; none when it is not one.
pub(super) fn width() -> Option<usize> {
    size().map(|(columns, _)| columns)
}

/// Columns and lines of the terminal that stdout is.
pub(super) fn size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

/// The lines of the list; those that need a person are marked and counted.
pub(super) fn table(rows: &[AgentRow], now_ms: u64, width: Option<usize>) -> Vec<String> {
    if rows.is_empty() {
        return vec!["No agents. Start one: caliban --bg \"<task>\"".to_owned()];
    }
    let cells: Vec<[String; 8]> = rows.iter().map(cells).collect();
    let head = ["ID", "LABEL", "STATE", "TURNS", "TOKENS", "COST", "AGE", "BRANCH"].map(str::to_owned);
    let mut widths = [0; 8];
    for line in cells.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    // The mark, the columns and the gaps between them.
    let used = 2 + widths.iter().sum::<usize>() + 2 * widths.len();
    let doing_chars = width.map_or(DOING_CHARS, |width| width.saturating_sub(used + 1).max(DOING_LEAST));
    let mut lines = vec![format!("{DIM}  {}  DOING{DIM:#}", joined(&head, &widths))];
    for (row, cells) in rows.iter().zip(&cells) {
        let shown = Shown::new(row, now_ms);
        let (mark, style) = match (shown.needs_you, row::has_ended(row.state)) {
            (true, _) => ("! ", NEEDS_YOU),
            (false, true) => ("  ", DIM),
            (false, false) => ("  ", Style::new()),
        };
        let line = format!("{mark}{}  {}", joined(cells, &widths), cut(&shown.doing, doing_chars));
        lines.push(format!("{style}{line}{style:#}"));
    }
    let waiting = rows.iter().filter(|row| row::needs_you(row)).count();
    let asks: usize = rows.iter().map(|row| row.asks.len()).sum();
    if waiting > 0 {
        let who =
            if waiting == 1 { "1 agent needs you".to_owned() } else { format!("{waiting} agents need you") };
        let how = if asks > 0 { "caliban approvals lists what they ask" } else { "caliban attach ID" };
        lines.push(format!("{NEEDS_YOU}{who}:{NEEDS_YOU:#} {how}"));
    }
    lines
}

fn cells(row: &AgentRow) -> [String; 8] {
    [
        row.id.to_string(),
        row.label.as_deref().map_or_else(|| "-".to_owned(), |label| cut(&inert::line(label), LABEL_CHARS)),
        state(row.state),
        row.turns.to_string(),
        row::tokens(row.usage.total()),
        row::cost(row),
        row::time(Duration::from_millis(row.age_ms)),
        row.branch.as_deref().map_or("-".into(), inert::line).into_owned(),
    ]
}

fn state(state: State) -> String {
    state.to_string()
}

fn joined(cells: &[String; 8], widths: &[usize; 8]) -> String {
    let mut line = String::new();
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if at > 0 {
            line += "  ";
        }
        // Amounts stand right.
        if (3..7).contains(&at) {
            line += &format!("{cell:>width$}");
        } else {
            line += &format!("{cell:<width$}");
        }
    }
    line
}

/// At most `chars` of a line.
pub(super) fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some(_) => {
            let kept: String = text.chars().take(chars.saturating_sub(1)).collect();
            format!("{kept}…")
        }
    }
}

#[cfg(test)]
mod tests {
    use caliban_core::lifecycle::Ending;
    use caliban_supervisor::records::Ask;

    use super::*;

    #[test]
    fn the_list_marks_who_needs_a_person() {
        let asks = vec![Ask { what: "Bash make install".into(), ..Ask::default() }];
        let rows = [
            AgentRow {
                label: Some("auth".into()),
                turns: 3,
                age_ms: 61_000,
                branch: Some("caliban/a3f8b2c1".into()),
                asks,
                ..row::tests::row(State::Running)
            },
            AgentRow { ending: Some(Ending::Finished), ..row::tests::row(State::Done) },
        ];
        let plain: Vec<String> = table(&rows, 0, Some(93))
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string().trim_end().to_owned())
            .collect();
        assert_eq!(
            plain,
            [
                "  ID        LABEL  STATE    TURNS  TOKENS  COST  AGE  BRANCH            DOING",
                "! a3f8b2c1  auth   running      3       0     -   1m  caliban/a3f8b2c1  asks: Bash make ins…",
                "  a3f8b2c1  -      done         0       0     -   0s  -                 finished",
                "1 agent needs you: caliban approvals lists what they ask",
            ]
        );
    }
}
